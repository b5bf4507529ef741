#!/bin/sh
# Takes back what postinstall.sh did, once rootsfs is removed and not upgraded: dpkg says
# remove or purge, rpm says 0.
set -e

case ${1:-} in remove | purge | 0) ;; *) exit 0 ;; esac
if [ -e /etc/apparmor.d/rootsfs ]; then
	if command -v aa-enabled >/dev/null && aa-enabled --quiet && command -v apparmor_parser >/dev/null; then
		apparmor_parser -R /etc/apparmor.d/rootsfs || :
	fi
	rm -f /etc/apparmor.d/rootsfs /var/cache/apparmor/*/rootsfs
fi
