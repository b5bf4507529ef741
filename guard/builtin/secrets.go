// Package builtin holds the built-in rules. They are about names in an ordinary project that a
// server should not use unless the owner allows it: secrets, files that other programs execute,
// and files that version control systems execute. The package also has the names by which tools
// recognise a repository (Parts, Tops). Package pattern applies the rules to paths, and package
// rules looks at the files where a rule has a Condition.
//
// # Promises
//
// Every rule has the reason for it (pattern.Rule.Reason). The tables do not change while
// the process runs. The package opens no files and compiles on every platform.
//
// # Not promised
//
// The tables are about present versions of the tools that they name. The tables do not list
// files that a project's own scripts run.
package builtin

import (
	"slices"
	"strings"
	"sync"

	"github.com/rootsfs/rootsfs/guard/pattern"
)

// The built-in rules are in force in every root that is a directory, unless the root's policy
// turns them off (Patterns.NoDefaults). An Allow pattern can lift each rule of the tables.

// secrets are hidden, at any depth: a program that may read a project should not get
// credentials for other services.
var secrets = []ruleGroup{
	{".env* !.env.example !.envrc", "environment files hold passwords and API keys; .env.example is the template without them, .envrc is protected"},
	{"id_rsa id_dsa id_ecdsa id_ecdsa_sk id_ed25519 id_ed25519_sk *.pem *.key *.ppk *.p12 *.pfx *.jks *.keystore", "private keys"},
	{".ssh", "keys, known hosts, and a configuration that names other machines"},
	{".gnupg", "private keys"},
	{".aws .azure .oci .boto .s3cfg **/.config/gcloud **/.config/doctl application_default_credentials.json", "cloud credentials"},
	{".kube kubeconfig *.kubeconfig", "cluster credentials"},
	{"**/.docker/config.json **/.config/containers/auth.json", "registry logins"},
	{".netrc _netrc .pgpass .my.cnf .vault-token .terraformrc **/.terraform.d/credentials.tfrc.json", "logins by machine"},
	{".git-credentials **/.config/git/credentials **/.config/gh/hosts.yml **/.config/hub", "tokens for the forge"},
	{".pypirc **/.cargo/credentials **/.cargo/credentials.toml **/.gem/credentials", "tokens for package registries"},
}

// controls are protected, at the top of the root and at the top of each repository that the
// root's users did not make themselves: other programs run the commands in these files with the
// owner's rights.
var controls = []ruleGroup{
	{".mcp.json .claude .cursor .windsurf .codex .gemini .aider.conf.yml .roo .kilocode .kiro .amazonq .qwen .continue .junie .trae .opencode opencode.json opencode.jsonc .crush.json crush.json .config/opencode .clinerules .factory .grok .codebuddy .augment .goose .openhands .copilot .github/copilot .github/hooks .rovodev .vibe", "tells an AI client which programs to start and what they may do"},
	{".vscode .idea .zed .helix *.code-workspace .config/zed .vs .fleet *.sublime-project .dir-locals.el .dir-locals-2.el", "editors run its tasks, and use the interpreters and tools it names"},
	{".devcontainer .devcontainer.json", "editors run its initializeCommand on the host before they enter the container"},
	{".exrc .vimrc _vimrc .gvimrc .nvimrc .nvim.lua .lvimrc .lazy.lua", "vim runs it where exrc is set"},
	{".bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc .zshenv .zprofile .zlogin .zlogout .kshrc .cshrc .tcshrc .login .config/fish",
		"the owner's shell runs it at its start or end"},
	{".envrc .direnv", "direnv runs it when the owner enters the directory"},
	{".mise.toml mise.toml .mise .config/mise .config/mise.toml .mise.local.toml mise.local.toml mise.*.toml .mise.*.toml mise/config.toml mise/config.local.toml", "mise runs its hooks when the owner enters the directory"},
	{".pre-commit-config.yaml lefthook.yml .lefthook.yml lefthook.yaml .lefthook.yaml lefthook.toml .lefthook.toml lefthook.json .lefthook.json lefthook-local.* .lefthook-local.* .config/lefthook.* .config/lefthook-local.* .overcommit.yml prek.toml hk.pkl", "the hooks that it names run when the owner commits"},
	{".husky .githooks", "git runs it where core.hooksPath names it"},
	{".npmrc .yarnrc .yarnrc.yml .pnpmfile.cjs .pnpmfile.mjs .cargo/config .cargo/config.toml", "names programs that the package manager or the compiler runs"},
	{".gdbinit .lldbinit .pdbrc .pdbrc.py .irbrc .pryrc .Rprofile .ghci .iex.exs .ocamlinit .byebugrc .rdbgrc", "a debugger or an interpreter runs it at its start"},
	{".github/workflows .github/actions .gitlab-ci.yml .gitlab/ci .circleci .buildkite .woodpecker .woodpecker.yml .forgejo/workflows .gitea/workflows .drone.yml .travis.yml Jenkinsfile azure-pipelines.yml bitbucket-pipelines.yml .azure-pipelines .tekton .semaphore .teamcity .cirrus.yml .cirrus.star appveyor.yml .appveyor.yml .build.yml .builds cloudbuild.yaml cloudbuild.yml",
		"runs on the project's build machines, with their secrets"},
	{".config/systemd .config/autostart", "started when the owner logs in"},
	{".gitconfig .config/git .hgrc .config/hg .emacs .emacs.d .config/emacs .vim .config/nvim .tmux.conf .config/tmux .screenrc .inputrc .xprofile .xinitrc .xsession .xsessionrc .pam_environment .config/environment.d .local/bin",
		"where the root is a home directory, the owner's programs take commands from it"},
}

// foreignTrees are directories with other people's code. The names in the tables have no meaning
// in such a directory, and package managers replace the files at any time. Of the built-in rules,
// only the rules about version control apply there.
const foreignTrees = "node_modules/ vendor/ site-packages/"

// Reserved returns the rules that hide a name everywhere. No Allow lifts them.
func Reserved(name string) []pattern.Rule {
	return []pattern.Rule{{List: pattern.ReservedHide, Text: name, Reason: "what was removed is kept there (rootsfs trash)"}}
}

// Rules returns the built-in rules. The caller must not change them.
func Rules() []pattern.Rule { return slices.Clip(rules()) }

// rules returns the built-in rules. It makes them at the first call, and all roots share them.
var rules = sync.OnceValue(func() []pattern.Rule {
	var out []pattern.Rule
	add := func(l pattern.List, prefix, texts, reason string, c pattern.Condition) {
		for text := range strings.FieldsSeq(texts) {
			out = append(out, pattern.Rule{List: l, Text: prefix + text, Reason: reason, Condition: c})
		}
	}
	for _, g := range secrets {
		add(pattern.BuiltinHide, "", g.texts, g.reason, pattern.Always)
	}
	add(pattern.BuiltinHide, "", ".npmrc", "hidden while it holds a token for the package registry", pattern.Tokens)
	for _, g := range controls {
		add(pattern.BuiltinProtect, "**/", g.texts, g.reason, pattern.AtTop)
		add(pattern.BuiltinProtect, "/", g.texts, g.reason, pattern.Always)
	}
	out = append(out, vcsRules()...)
	add(pattern.BuiltinProtect, "**/", ".gitmodules .gitmodules.lock",
		"names the repositories that git fetches, and commands for them; git writes it under the other name", pattern.AtTop)
	add(pattern.Except, "", foreignTrees,
		"other people's code: the built-in rules, but for those about version control, do not hold in it", pattern.Always)
	return out
})
