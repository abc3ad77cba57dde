# Numbers, null, objects, lists of anything but strings.
. "$(dirname "$0")/prelude"
for value in 3 null true '{"a":1}' '["a",["b"]]' '["a",null]'; do
  printf '{"text":"good"}\n{"text":%s}\n' "$value" >in.jsonl
  readers in.jsonl
done
