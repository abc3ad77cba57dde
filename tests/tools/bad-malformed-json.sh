# One malformed line of three: nothing is written, the message has file, line and byte.
. "$(dirname "$0")/prelude"
printf '{"text":"good"}\n{"text":"bad}\n{"text":"good"}\n' >in.jsonl
readers in.jsonl
printf '{"text":"good"} {"text":"second object on the line"}\n' >in.jsonl
readers in.jsonl
printf '[\n  {"text": "pretty"}\n]\n' >in.jsonl
readers in.jsonl
# What is no JSON from its first byte on: the message says how it is read.
printf 'Four score and seven\n' >in.txt
readers in.txt
printf '<mediawiki>\n' >in.xml
readers in.xml
printf '{"text":"good"}\nplain\n' >in.jsonl
run json-extract in.jsonl -o out.jsonl
