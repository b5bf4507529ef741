package cli

import (
	"strings"
	"testing"
)

// A session is named after the program that is run, and not after a subcommand.
func TestCommandName(t *testing.T) {
	for command, want := range map[string]string{
		"npm i": "npm", "npm install left-pad": "npm", "npm ci": "npm", "npm test": "npm", "yarn add x": "yarn", "pnpm i": "pnpm", "uv pip install x": "uv",
		"npx -y @scope/server@1.2 /tmp": "server", "npx -y @scope/server": "server", "npm exec -y @scope/server": "server", "pnpm dlx server": "server",
		"uvx mcp-server-git": "mcp-server-git", "uv tool run mcp-server-git": "mcp-server-git", "uv run server.py": "server", "pipx run black": "black", "pipx install black": "pipx",
		"bun x server": "server", "bun install": "bun", "bun server.ts": "server", "deno run -A server.ts": "server", "npm run dev": "dev",
		"python3 -m http.server": "http", "node /srv/app/index.js": "index", "/usr/bin/git status": "git", "npm": "npm", "npx": "npx",
	} {
		if got := commandName(strings.Fields(command)); got != want {
			t.Errorf("%s: got %s, want %s", command, got, want)
		}
	}
}
