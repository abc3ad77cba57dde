# Files of other kinds are named, not read as text.
. "$(dirname "$0")/prelude"
printf 'PK\3\4rest of an archive' >in.zip
readers in.zip
printf 'PAR1rest' >in.parquet
readers in.parquet
readers in.missing
mkdir in.folder
readers in.folder
printf '\37\235\220rest' >in.Z
readers in.Z
printf 'LZIP\1rest' >in.lz
readers in.lz
