// Package config reads, watches and extends the configuration of rootsfs, one
// TOML file of the owner's:
//
//	[mount]                      # what the flags of `rootsfs mount` say, as defaults
//	cache = "audit"              # strict, audit, max
//	locks = "local"              # local, host
//	posix = "safe"               # safe, full
//	audit_paths = "full"         # full, hash, none
//	audit_max_size = "2G"        # audit files of all sessions together; more are deleted (0: never)
//	audit_max_days = 90          # age of audit files; older ones are deleted (0: never)
//	read_only = false
//	allow_other = false
//
//	[run]                        # what every `rootsfs run` keeps to
//	level = "namespaces"         # or bubblewrap, landlock: this or a stronger one, or nothing starts
//	links = "visible"            # or strict: no link that leaves its root is shown
//	listen = [3000]              # ports that commands with --net may listen on
//	socket = ["/run/agent.sock"] # sockets of the host's that commands may connect to
//	net_timeout = "60s"          # how long a connection waits that you are asked about (ask, below)
//
//	[run.net_limits]             # of one run's connections to approved hosts, all together
//	bytes_per_second = "10M"     # more wait
//	bytes = "1G"                 # then every connection is reset
//	connections = 100            # one more is reset
//
//	[[net]]                      # hosts that commands of `rootsfs run` may connect to
//	hosts = ["api.github.com:443", "*.npmjs.org"]
//	ask = true                   # about other hosts, while the connection waits
//	subject = "my-agent"         # the run that it is for, by its name; default: every one
//	for = "8h"                   # or expires = 2027-01-31T18:00:00+01:00
//	[net.limits]                 # of the connections to these hosts, all together
//	bytes_per_second = "1M"
//	bytes = "100M"
//	connections = 10
//
//	[[secret]]                   # a credential that commands of `rootsfs run` use and do not get
//	name = "GITHUB_TOKEN"        # the variable: the credential outside, a placeholder inside
//	url = "https://api.github.com" # where it is sent, and nowhere else
//	allow = ["GET /repos/me/**"] # requests that are sent on; default: every one
//	header = "Authorization: Bearer" # the header that it is sent in
//	user = "git"                 # or the user whose password it is (HTTP Basic)
//	variable = "GITHUB_API_URL"  # tells the program its base URL; default: NAME_BASE_URL
//	file = "~/.github-token"     # holds the credential, in the place of the variable
//	command = ["gh", "auth", "token"] # or prints it
//	subject = "my-agent"         # the run that gets it unasked; default: runs with --secret NAME
//
//	[limits]                     # for every root that does not say otherwise
//	ops_per_second = 2000        # operations; more wait
//	burst = 4000                 # operations that need not wait
//	bytes_in_flight = "64M"      # sizes: bytes, or a number with K, M, G, T (powers of 1024)
//	max_file = "10M"
//	max_written = "1G"
//	max_created = 100000         # names
//	timeout = "60s"              # of one operation
//	idle = "1h"                  # revoked when nothing used it for so long
//
//	[policy]                     # of every root; patterns as in .gitignore, see package guard/pattern
//	hide = ["*.sql"]             # not there
//	deny = ["/private/"]         # seen, not opened
//	protect = ["LICENSE"]        # read, never changed
//	allow = [".env.test"]        # lifts the built-in protections
//	respect_gitignore = false    # hides what .gitignore files name when the grant is made
//	defaults = true              # the built-in protections
//
//	[trash]                      # what is removed from roots is kept, in .rootsfs-trash of each
//	on = false                   # files that are unlinked, replaced or truncated to nothing
//	size = "1G"                  # in each root; the oldest goes when there is more
//	age = "720h"                 # what is older goes
//
//	[files]                      # what MCP servers get over files/*
//	consent = "ask"              # ask (rootsfs consent), or deny what no allow block names
//	consent_timeout = "2m"       # how long a question waits; then it is denied
//	ops_per_second = 500         # requests of one server; more are refused, with a time to retry
//	bytes_per_second = "50M"
//	max_file = "10M"
//	max_written = "1G"           # while the server is connected
//	watches = 64
//	watched_directories = 8192
//	frame = "4M"                 # the longest message of a server
//
//	[[subject]]                  # what one server may use in all its roots together
//	name = "editor"              # "*": every server without a block, each for itself
//	max_file = "10M"
//	max_written = "1G"           # while the session lives
//	max_created = 100000         # names, likewise
//
//	[[files.allow]]              # granted when asked for, or when something below it is
//	path = "~/src/app"
//	mode = "ro"                  # the most that is granted so
//
//	[abuse]                      # of one server, in a minute; more raise an event (0: never)
//	escapes = 30                 # attempts to leave a root
//	refusals = 600               # these and all other refusals
//	suspend = false              # more also suspend the server, until `rootsfs resume`
//
//	[reload]
//	debounce = "250ms"           # how long changes of this file are gathered
//
//	[[root]]
//	name = "code"                # default: the last element of the path
//	path = "~/src/app"           # or uri = "file:///home/me/src/app"
//	mode = "ro"                  # ro (default), rw, or a list of rights
//	subject = "editor"           # the one server it is for; default: every one
//	for = "8h"                   # or expires = 2027-01-31T18:00:00+01:00
//	cross_file_systems = false
//	allow_system = false         # lets a system directory such as /etc be writable
//	limits = { max_file = "1M" } # these keys only; the rest as in [limits]
//	policy = { hide = ["tmp/"] } # after those of [policy]
//	trash = { on = true }        # these keys only; the rest as in [trash]
//
//	[profile.review]             # `--profile review` uses these roots instead of all
//	roots = ["code", "notes=~/notes:rw"]
//
//	[agent.codex]                # what differs from the preset of `run --for codex`
//	mode = "ro"
//	home = "~/.local/share/rootsfs/agents/codex"
//	home_files = [".codex/config.toml"]
//	env = ["OPENAI_API_KEY"]
//	hosts = ["api.openai.com"]   # in place of the preset's
//	net = true                   # the whole network instead; false: none
//	hide = ["secrets/"]
//	protect = ["/Makefile"]
//
// # Promises
//
// A file that is not wholly understood is not used: an unknown key, a value of
// the wrong type or out of range, a name given twice are errors that carry the
// file, the line and the key. No input makes the package panic, and its work is
// bounded (MaxSize). A file that somebody else could have written is refused:
// it and every directory on the way to it, links included, must belong to the
// user or to root and be writable by nobody else (sticky directories excepted).
// A root of the file that contains the file is refused.
//
// A reload is whole or nothing. Watch reports each new state of the file once,
// after it has been left alone for a while; what to do with a bad one is the
// caller's, who keeps the old configuration. Save replaces the file atomically
// and changes nothing that stood there.
//
// # Not promised
//
// Whether the roots exist is not looked at: the guard says so when they are
// granted, and there judges a root whose path reaches the file through links
// (see Config.Keep). POSIX ACLs are seen only as far as the group bits of the
// mode show them. The user, and root, can write what they like.
//
// A *Config is not changed after Load has returned it. The functions may be
// called concurrently; two Saves exclude each other, between processes too.
package config
