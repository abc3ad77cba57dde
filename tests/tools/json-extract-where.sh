# --where: types, nulls, operators, mistakes; nested keys; a file that is one JSON array.
. "$(dirname "$0")/prelude"
cat >in.jsonl <<END
{"text": "a", "language": "en", "score": 0.9, "flagged": false, \
"meta": {"source": "web", "n": {"deep": 1}}, "odd key": 1}
{"text": "b", "language": "en", "score": 0.5, "flagged": true, "meta": {"source": "book"}}
{"text": "c", "language": "de", "score": 1e0, "flagged": null, "meta": null}
{"text": "d", "language": ["en"], "score": "0.9"}
{"text": "e", "language": null, "score": -3}
{"other": "no text", "language": "xx"}
END
where() { # CONDITION: the texts that are kept, and the last line of messages
  echo "- $1"
  json-extract -0 --on-error skip --where "$1" in.jsonl 2>said | tr '\0' ' '
  echo; sed 's/^json-extract: //' said
}
where 'language == "en" and score > 0.5'
where "language == 'de' or language == 'en' and not score > 0.5"
where '(language == "de" or language == "en") and not score > 0.5'
where 'language in ["de", null] or meta.source == "web"'
where 'language != "en"'
where 'flagged'
where 'not flagged and language != "xx"'
where 'score <= -3 or score >= 1'
where 'language < "en"'
where 'meta.n.deep == 1.0 and `odd key` == 1'
where 'score'
where 'missing == null and language == "en" and true == flagged'
where '0.5 < score'
where 'score > 1e+1 or score == 9e-1'
echo "- mistakes"
refused() { # EXPRESSION FILE
  json-extract --where "$1" "$2" </dev/null >/dev/null 2>said
  echo "$? $(sed 's/^json-extract: //' said | head -n 1)"
}
for wrong in ' ' 'language =' 'language = "en"' 'a == "b' '1 == 1' '"x"' 'a <' 'a in b' \
  'a in [b]' 'a in ["x"' '(a' 'a b' 'not' 'a > true' 'a and' 'and' 'a == 1x'; do
  refused "$wrong" in.jsonl
done
run json-extract -q --input-format lines --where 'a' in.jsonl 2>&1
echo "- whole numbers of 64 bits, and escapes"
cat >ids.jsonl <<'END'
{"text": "a", "id": 9007199254740993, "name": "caf\u00e9 \ud83d\ude00"}
{"text": "b", "id": 9007199254740992.0, "name": "a\"b\\\r"}
{"text": "c", "id": 18446744073709551615, "name": "u00e9"}
{"text": "d", "id": -9223372036854775807, "name": "it's \u0000"}
{"text": "e", "id": 18446744073709551614, "name": "\u00e9\u00e8/"}
END
ids() {
  printf '%s: ' "$1"
  json-extract -q -0 --where "$1" ids.jsonl 2>said | tr '\0' ' '
  sed 's/^json-extract: //' said
  echo
}
ids 'id == 9007199254740992'
ids 'id in [9007199254740993, 18446744073709551614]'
ids 'id > 9007199254740992 and id < 18446744073709551615'
ids 'id == -9223372036854775807'
ids 'id < -9223372036854775806'
ids 'id == 9.007199254740992e15'
ids 'name == "caf\u00e9 \uD83D\ude00"'
ids 'name == "a\"b\\\r"'
ids "name == 'it\\'s \\u0000'"
ids 'name in ["\u00e9\u00e8\/"]'
ids 'name == "\\u00e9"'
for wrong in 'a == "\x"' 'a == "\8"' 'a == "\u00e"' 'a == "\u00eg"' 'a == "\ud800"' \
  'a == "\ud800\u0041"' 'a == "\udc00"' 'a == "\u00e9\u0"' 'a == "\'; do
  refused "$wrong" ids.jsonl
done
echo "- nested keys"
cat >nested.jsonl <<'END'
{"raw": {"text": "one \u00e9\n", "a": {"b": ["x", "y\\"]}}, "title": "t"}
{"title": "u", "raw": {"text": "in", "a": {"b": "z", "b": "last"}}, "raw.text": "whole name"}
{"raw": {"a.b": "joined", "text": "q"}, "title": "v"}
{"raw": "no object", "title": "w"}
{"raw": {"text": "\ud800", "a": {"b": "c"}}, "title": "x"}
{"raw": {"text": 5, "a": {"b": "c"}}, "title": "y"}
{"raw": {"text": "ok", "a": {"c": "c"}}, "title": "z"}
END
json-extract --on-error skip --json-keys raw.text title raw.a.b -- nested.jsonl 2>&1
bpe-tokenize -q $VOCAB --on-error skip --json-keys raw.text -o nested nested.jsonl 2>/dev/null
ls nested*
echo "- an array"
printf '[\n  {"text": "a, ]}\\" b",\n   "n": [1, {"x": 2}]},\r\n{"text":"two"} , ' >array.json
printf '{"text"\n:\n"three"}\n]\n' >>array.json
json-extract --input-format array array.json 2>&1
json-extract -q --input-format array <array.json | json-extract -q --where 'text != "two"'
printf '[]' | json-extract --input-format array 2>&1
printf ' [ ] \n' | json-extract --input-format array 2>&1
gzip -c array.json | json-extract -q --input-format array
printf '[{"text": "a"}, {"txt": "b"}, 5, {"text": "c"}]' >bad.json
json-extract --input-format array --on-error skip bad.json 2>&1
for wrong in '{"text": "a"}' '' '[{"text": "a"}' '[{"text": "a"},]' '[,{"text": "a"}]' \
  '[{"text": "a"}] x' '[{"text": "a"}}' '[{"text": "a' '[{"text": "a"} {"text": "b"}]'; do
  printf '%s' "$wrong" >wrong.json
  json-extract -q --input-format array wrong.json 2>said >/dev/null; echo "$? $(cat said)"
done
echo "- a line end inside a string is one bad item; an escaped one is text"
printf '[{"text": "a\nb"},\n {"te\rxt": "c"}, {"text": "\\\r\n"}, {"text": "d\\n\\\\"}]' >raw.json
json-extract --input-format array raw.json 2>&1
json-extract --input-format array --on-error quarantine -o raw.out raw.json 2>&1
tr '\036' '@' <raw.out.quarantine
printf '{\n  "text": "a"\n}\n' | json-extract 2>&1
printf '{' | json-extract 2>&1
json-extract array.json 2>&1
json-extract --input-format array --range 1/2 array.json 2>&1
echo "- a large array as its lines, whatever the workers"
seq 30000 | sed 's/.*/{"text": "item & with some words to make it longer", "n": &}/' >large.jsonl
{ echo '['; sed '$!s/$/,/' large.jsonl; echo ']'; } >large.json
for w in 1 3 8; do
  json-extract -q -w $w --input-format array --where 'n > 100' large.json | md5sum
done
json-extract -q --where 'n > 100' large.jsonl | md5sum
echo "- two conditions"
json-extract -q --where 'score > 0.5' --where 'flagged == false' in.jsonl 2>&1
