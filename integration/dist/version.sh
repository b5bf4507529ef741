#!/bin/sh
# version.sh prints the version, the commit and the commit's date of the checkout that
# contains the working directory: three words, or nothing where no git checkout is.
#
# The version is the commit's tag (v1.2.3). Without a tag it is the pseudo-version that
# the go command would use, such as v1.2.4-0.20261125132739-377553967757 after v1.2.3.
# "+dirty" at its end says that tracked files differ from the commit.
set -eu

commit=$(git rev-parse --verify -q HEAD 2>/dev/null) || exit 0
tag=$(git tag --points-at HEAD --list 'v[0-9]*' --sort=-version:refname | head -n 1)
version=$tag
if [ -z "$tag" ]; then
	stamp=$(TZ=UTC git show -s --format=%cd --date=format-local:%Y%m%d%H%M%S HEAD)-$(printf %.12s "$commit")
	before=$(git describe --tags --abbrev=0 --match 'v[0-9]*' HEAD 2>/dev/null || :)
	case $before in
	'') version=v0.0.0-$stamp ;;
	*-*) version=$before.0.$stamp ;;
	*) version=${before%.*}.$((${before##*.} + 1))-0.$stamp ;;
	esac
fi
git diff --quiet HEAD -- 2>/dev/null || version=$version+dirty
echo "$version $commit $(TZ=UTC git show -s --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ HEAD)"
