# An empty file and a file of blank lines give valid datasets without documents.
. "$(dirname "$0")/prelude"
: >in.jsonl
readers in.jsonl
od -An -tx1 -v out_text_document.idx
rm -r out*
printf '\n\n' >in.jsonl
readers in.jsonl
# Documents without tokens that are left out are not counted as written.
printf '{"text":"","b":""}\n{"text":"a","b":"a"}\n{"text":[],"b":"a"}\n' >in.jsonl
bpe-tokenize --empty-documents skip -o skipped $VOCAB in.jsonl
bpe-tokenize --empty-documents skip -o both $VOCAB --json-keys text b --input in.jsonl
inspect-dataset stats skipped_text_document | grep -E "^(empty )?documents"
