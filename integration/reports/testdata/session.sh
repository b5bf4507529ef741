# session.sh PROGRAM DIR CACHE CASES mounts DIR/src at DIR/mnt, runs each script of CASES in
# a directory of its own there, and leaves its output and exit code in DIR/out.
program=$1 dir=$2 cases=$4
export CACHE="$3"
mkdir "$dir/src" "$dir/mnt" "$dir/out"
"$program" mount --daemon --cache "$CACHE" --root w="$dir/src":rw "$dir/mnt" || exit
for case in "$cases"/*.py; do
	name=$(basename "$case" .py)
	mkdir "$dir/src/$name"
	code=0
	(cd "$dir/mnt/w/$name" && SRC="$dir/src/$name" exec python3 "$case") >"$dir/out/$name" 2>&1 || code=$?
	echo "$code" >"$dir/out/$name.code"
done
"$program" unmount "$dir/mnt"
