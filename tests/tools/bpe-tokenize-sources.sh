# The manifest has the line of each document, where the input has lines.
. "$(dirname "$0")/prelude"
printf 'the cat\n\nsat on\nthe mat\n' >in.lines
printf '{"text":"the cat"}\n\n{"text":"sat on"}\n{"text":"the mat"}\n' >in.json
printf '[{"text":"the cat"},\n\n{"text":"sat on"}]\n' >in.array
printf 'the cat\nsat on\0the mat\0' >in.nul
printf 'the cat\nsat on\n' >in.file
for form in lines json array nul file; do
  echo "- $form"
  bpe-tokenize -q $VOCAB --input-format $form -o $form -- in.$form
  tr -d ' \n' <${form}_text_document.manifest | grep -o '"sources":\[[^]]*\]' | grep -o '{[^}]*}'
done
