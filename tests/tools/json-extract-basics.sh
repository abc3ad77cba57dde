# What goes out: the named keys in the named order, least escapes, lists as lists, NUL-ended
# text, counts that add up.
. "$(dirname "$0")/prelude"
cat >in.jsonl <<'END'
{"id": 1, "title": "A \u00e9\ud83d\ude00\/\u0007\u007f", "text": "line\nend\ttab \"q\" \\ \u2028"}
{"text": ["one", "two\u0000"], "title": ""}
{"title": "dup", "text": "x"}
{"text": "x", "other": 5, "title": "dup"}
{"title": "caf\u00c3\u00a9", "text": "  many   \r\n\r\n\n\n  blanks  "}
END
run json-extract --json-keys text title -- in.jsonl
run json-extract --json-keys text title --dedup --min-chars 3 --max-chars 30 \
  --repair-mojibake --whitespace collapse \
  --control-chars space --normalize nfkc in.jsonl
run json-extract --json-keys text title in.jsonl
json-extract -q -0 --control-chars remove in.jsonl | od -c | head -n 20
cat in.jsonl | run json-extract -q --json-keys title --input - in.jsonl | tail -n 3
printf '{"text":"ab"}\n{"text":"abc"}\n{"text":"éèê"}\n{"text":"abcd"}\n' >lengths.jsonl
run json-extract -q --max-chars 3 lengths.jsonl
run json-extract -q --min-chars 3 lengths.jsonl
run json-extract -q --min-chars 3 --max-chars 3 lengths.jsonl
json-extract --help | grep -A 3 -e --max-chars
printf '' >text # a file of a key's name; inputs are named, so it is no mistake
json-extract -q --json-keys title text --input in.jsonl | head -n 1
