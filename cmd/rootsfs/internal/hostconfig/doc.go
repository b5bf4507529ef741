// Package hostconfig edits the configuration files of MCP hosts: it finds the
// servers that a host starts, makes the host start them through `rootsfs run`,
// and takes that back. It works on bytes and touches no file.
//
// # The files
//
// Ten hosts, five places for servers in a JSON document, and one in TOML:
//
//	{"mcpServers": {NAME: SERVER}}                         Claude Desktop, Claude Code, Cursor,
//	                                                       Windsurf, Gemini CLI, Cline
//	{"context_servers": {NAME: SERVER}}                    Zed (with comments and trailing commas)
//	{"servers": {NAME: SERVER}}                            VS Code (with comments and trailing commas)
//	{"mcp": {NAME: SERVER}}, {"mcp": {"servers": {…}}}     opencode, VS Code's settings.json
//	[mcp_servers.NAME]                                     Codex (TOML)
//	{"projects": {DIRECTORY: {"mcpServers": {NAME: …}}}}   Claude Code, ~/.claude.json
//
// A SERVER that is started has "command", "args" and "env"; one that is reached
// over a network has "url". opencode's "command" is a list with the arguments in it, and
// its variables are in "environment". Verified against VS Code's and Cursor's reference
// pages and against Claude Code 2.1 itself in November 2026.
//
// # What is written
//
// Of a server two members change, and nothing else of the document:
//
//	"command": "npx",                  "command": "/usr/bin/rootsfs",
//	"args": ["-y", "x"]                "args": ["run", FLAGS…, "--", "npx", "-y", "x"]
//
// The edits are splices at offsets that the parser reports, not a document
// printed anew: what is outside of them survives because it is copied. The
// parser is hujson, which keeps the place of every value among comments and
// trailing commas, and whose Pack gives a document back byte for byte (the fuzz
// target holds it to that). For TOML it is package tomltree, which our own configuration is
// read with and which reports places, too; its servers are read into hujson's tree. Packages
// that decode and encode cannot: they lose comments, the order of keys and large numbers.
//
// # Promises
//
// A document that is not wholly understood where it matters is an error with its
// line, and nothing is changed: malformed JSON, a key given twice, a server of
// unknown shape, text that is not UTF-8. No input makes the package panic; its
// work is bounded (MaxSize, maxDepth).
//
// Unwrap after Wrap gives the document back byte for byte: comments, order,
// indentation, line ends, byte order mark. Of a document that was edited or
// reformatted in between, Unwrap keeps the edits, and takes back only what Wrap
// added.
//
// # Not promised
//
// Whether the server works with what it is given: the proposals (Propose) are
// guesses from its arguments, made to be shown. A comment that a person wrote
// between the words that Wrap added goes with them.
//
// A *Config is not changed after Parse has returned it. The functions may be
// called concurrently.
package hostconfig
