# An empty file and a file of blank lines give valid datasets without documents.
. "$(dirname "$0")/prelude"
: >in.jsonl
readers in.jsonl
od -An -tx1 -v out_text_document.idx
rm -r out*
printf '\n\n' >in.jsonl
readers in.jsonl
