# CRLF, a lone CR, blank lines and a missing line end at the end change nothing.
. "$(dirname "$0")/prelude"
printf '{"text":"one"}\n{"text":"two"}\n{"text":"three"}\n' >in.unix
printf '{"text":"one"}\r\n\r\n  \n{"text":"two"}\r{"text":"three"}' >in.mixed
for file in in.unix in.mixed; do
  run json-extract -q -o $file.out $file
  run bpe-tokenize -q -o $file $VOCAB $file
done
cmp in.unix.out in.mixed.out && cmp in.unix_text_document.bin in.mixed_text_document.bin &&
  cmp in.unix_text_document.idx in.mixed_text_document.idx
