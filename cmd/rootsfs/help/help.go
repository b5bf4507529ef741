// Package help holds the texts of the manual: one Markdown file for each topic of `rootsfs help
// TOPIC`. The files can be read in the repository, too. The pages of section 7 of the manual are
// made from them.
//
// Tables between "<!-- generated: NAME -->" and "<!-- end -->" are written by
// `go generate ./cmd/rootsfs` from the code that they describe, and a test compares
// the tables with the code.
//
// # Promises
//
// Each topic has one page, whose first line is "# NAME: what it is about". Links to
// NAME.md lead to topics that exist.
//
// # Not promised
//
// The text may change with every version.
package help

import (
	"embed"
	"slices"
	"strings"
)

//go:embed *.md
var pages embed.FS

// Topic is a topic of the manual. Each topic has one page.
type Topic struct {
	Name  string
	Words string // further words that users may type for the topic, separated by spaces
}

// topics has all topics, in the order in which rootsfs help lists them.
var topics = []Topic{
	{"roots", "root grant mode modes rights spec once links symlinks revoke locks subject"},
	{"policy", "rules patterns hide deny protect hidden protected gitignore env git hooks"},
	{"consent", "ask question questions approve permission permissions"},
	{"stage", "staged staging review diff apply discard undo checkpoint changes upper overlay"},
	{"trash", "undelete restore deleted recover"},
	{"limits", "limit quota quotas abuse expire expiry time size memory"},
	{"confinement", "sandbox confine landlock bubblewrap namespaces seccomp level home socket attacks"},
	{"network", "net host hosts internet connect dns domain firewall"},
	{"secrets", "secret credential credentials key token tokens password header"},
	{"agents", "agent presets preset claude codex gemini opencode aider goose"},
	{"hosts", "wrap wrapping claude codex gemini opencode mcp client clients desktop vscode cursor windsurf zed cline systemd service"},
	{"serve", "tools http oauth server filesystem"},
	{"console", "top browser web page ui"},
	{"config", "configuration toml settings keys profile profiles"},
	{"ceiling", "administrator admin policy managed mdm organisation bound bounds enforce"},
	{"fleet", "machines machine join invite team central remote stop nats server agent"},
	{"audit", "log logs record records history"},
	{"json", "output fields format script scripts exit code codes"},
	{"metrics", "prometheus figures monitoring"},
	{"security", "promises threat model trust revocation killed crash"},
	{"performance", "speed cache fast slow benchmark bench transport"},
	{"troubleshooting", "errors error problem problems doctor refused fuse install help faq why"},
	{"embedding", "library go api sdk import broker"},
}

// Topics returns all topics, in the order in which rootsfs help lists them.
func Topics() []Topic { return slices.Clone(topics) }

// Page returns a topic's page, and whether there is such a topic.
func Page(name string) (string, bool) {
	if !slices.ContainsFunc(topics, func(t Topic) bool { return t.Name == name }) {
		return "", false
	}
	page, err := pages.ReadFile(name + ".md")
	return string(page), err == nil
}

// Summary returns what a topic is about, in one line.
func (t Topic) Summary() string {
	page, _ := Page(t.Name)
	line, _, _ := strings.Cut(page, "\n")
	_, about, _ := strings.Cut(line, ": ")
	return about
}

// Near returns the names of the topics that have the word, in lower case, in Topic.Words.
func Near(word string) []string {
	var out []string
	for _, t := range topics {
		if slices.Contains(strings.Fields(t.Words), strings.ToLower(word)) {
			out = append(out, t.Name)
		}
	}
	return out
}
