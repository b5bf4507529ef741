// Package hostconfig edits the configuration files of MCP hosts: it finds the servers that a
// host starts, makes the host start them through `rootsfs run`, and undoes that. It works on
// bytes and opens no file.
//
// # The files
//
// The servers of the ten hosts are in six places of JSON documents, and in one of a TOML document:
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
// its variables are in "environment". In November 2026, the formats of VS Code and Cursor were
// verified against their reference pages, and the format of Claude Code against Claude Code 2.1.
//
// # What is written
//
// Two members of a server change (only "command" in opencode's file), and nothing else in the document:
//
//	"command": "npx",                  "command": "/usr/bin/rootsfs",
//	"args": ["-y", "x"]                "args": ["run", FLAGS…, "--", "npx", "-y", "x"]
//
// The document is not printed anew. The edits are splices at offsets that the parser reports,
// and everything outside of them is copied. The parser is hujson. It keeps the place of every
// value among comments and trailing commas, and its Pack returns a document byte for byte (a
// fuzz target checks that). For TOML the parser is package tomltree, which also reads the
// configuration of rootsfs. Both parsers report the place of a value. The servers of a TOML document
// are converted to hujson's tree. Packages that decode and encode a document cannot be used: they lose
// comments, the order of keys and large numbers.
//
// # Promises
//
// Parse refuses a document that is malformed, has a duplicate key or is not UTF-8. The error tells
// the line, if the parser reports it. A server of unknown shape is an error of that server alone
// (Server.Err). No input makes the package panic; its work is bounded (MaxSize, maxDepth).
//
// Unwrap after Wrap returns the document byte for byte: comments, order, indentation, line
// ends, byte order mark. If the document was edited or reformatted in between, Unwrap keeps the
// edits and removes only the additions of Wrap.
//
// # Not promised
//
// A server may fail with the proposed roots: the proposals (Propose) are guesses from its
// arguments, for a person to check. A comment that a person wrote between the words that Wrap
// added is removed with them.
//
// A *Config is not changed after Parse has returned it. The functions may be
// called concurrently.
package hostconfig
