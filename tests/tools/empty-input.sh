# An empty file and a file of blank lines are whole datasets of no documents.
. "$(dirname "$0")/prelude"
: >in.jsonl
readers in.jsonl
od -An -tx1 -v out_text_document.idx
rm -r out*
printf '\n\n' >in.jsonl
readers in.jsonl
