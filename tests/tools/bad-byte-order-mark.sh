# A byte order mark at the front of a file is named, with the remedy.
. "$(dirname "$0")/prelude"
printf '\xef\xbb\xbf{"text":"good"}\n' >in.jsonl
readers in.jsonl
printf '\xff\xfe{\0' >in.utf16
readers in.utf16
