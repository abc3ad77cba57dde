# Files of other kinds are named, not read as text.
. "$(dirname "$0")/prelude"
printf 'PK\3\4rest of an archive' >in.zip
both in.zip
printf 'PAR1rest' >in.parquet
both in.parquet
both in.missing
mkdir in.folder
both in.folder
