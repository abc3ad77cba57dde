# A million brackets: an error, no crash, at any length of line.
. "$(dirname "$0")/prelude"
{
  printf '{"text":"good","deep":'
  head -c 1000000 /dev/zero | tr '\0' '['
  printf '\n'
} >in.jsonl
readers in.jsonl
{
  printf '{"text":"good","deep":'
  head -c 1030 /dev/zero | tr '\0' '['
  printf '\n'
} >in.jsonl
readers in.jsonl
