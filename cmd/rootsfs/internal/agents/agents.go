// Package agents has a preset for each coding agent: the files, variables and hosts that the agent
// needs when it runs confined. Each preset is a data file, made from the agent's own documentation
// (November 2026).
//
// Every file is read strictly: an unknown key fails the package's test. Find and All
// return copies that the caller may change. The lists follow the agents' documentation,
// not their programs: an agent may look for more hosts and files.
package agents

import (
	"bytes"
	"embed"
	"fmt"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

//go:embed *.toml
var files embed.FS

// Agent holds the needs of one agent.
type Agent struct {
	Name    string   `toml:"-" json:"name"`
	Title   string   `toml:"title" json:"title"`
	Docs    string   `toml:"docs" json:"docs"` // address of the documentation of the agent
	Command string   `toml:"command" json:"command"`
	Mode    string   `toml:"mode" json:"mode"`                 // mode of the project's root; default rw
	Env     []string `toml:"env" json:"env"`                   // variables that are passed on if they are set; NAME or PREFIX*
	Set     []string `toml:"set" json:"set,omitempty"`         // NAME=VALUE
	Home    []string `toml:"home" json:"home"`                 // files of the owner's HOME that are copied into the HOME of the agent
	Hide    []string `toml:"hide" json:"hide,omitempty"`       // patterns in addition to the built-in ones
	Protect []string `toml:"protect" json:"protect,omitempty"` // patterns in addition to the built-in ones
	Hosts   []string `toml:"hosts" json:"hosts"`               // hosts that the agent may connect to, written as for run --net
	Secrets []Secret `toml:"secret" json:"secrets,omitempty"`  // credentials that the agent can use but not read, if run --secret names them
}

// Secret is a credential for programs that take their base URL from a variable.
type Secret struct {
	Name     string `toml:"name" json:"name"`         // variable that holds the credential
	URL      string `toml:"url" json:"url"`           // address of the service that accepts the credential
	Header   string `toml:"header" json:"header"`     // header that carries the credential; "": Authorization: Bearer
	Variable string `toml:"variable" json:"variable"` // variable that holds the base URL
}

// secrets has the secrets for programs without a preset, as the makers of the services document
// them.
var secrets = []Secret{
	{"ANTHROPIC_API_KEY", "https://api.anthropic.com", "x-api-key", "ANTHROPIC_BASE_URL"},
	{"ANTHROPIC_AUTH_TOKEN", "https://api.anthropic.com", "", "ANTHROPIC_BASE_URL"},
	{"GEMINI_API_KEY", "https://generativelanguage.googleapis.com", "x-goog-api-key", "GOOGLE_GEMINI_BASE_URL"},
	{"GITHUB_TOKEN", "https://api.github.com", "", "GITHUB_API_URL"},
	{"OPENAI_API_KEY", "https://api.openai.com/v1", "", "OPENAI_BASE_URL"},
}

// Secrets returns the secrets for programs without a preset.
func Secrets() []Secret { return slices.Clone(secrets) }

// FindSecret returns the secret with this name from the agent's preset. If the preset has no such
// secret, FindSecret looks in the secrets for programs without a preset. agent may be "".
func FindSecret(agent, name string) (Secret, bool) {
	a, _ := Find(agent)
	for _, s := range slices.Concat(a.Secrets, secrets) {
		if s.Name == name {
			return s, true
		}
	}
	return Secret{}, false
}

// baseURLs are variables that hold the address of a model's service.
var baseURLs = []string{"ANTHROPIC_BASE_URL", "DATABRICKS_HOST", "GOOGLE_GEMINI_BASE_URL", "OPENAI_API_BASE", "OPENAI_BASE_URL"}

// BaseURLs returns the variables of Env that hold the address of a model's service. The host of
// such an address counts as one of the agent's hosts. No other variable approves a host.
func (a *Agent) BaseURLs() []string {
	return slices.DeleteFunc(slices.Clone(a.Env), func(name string) bool { return !slices.Contains(baseURLs, name) })
}

// Names lists the names of the agents, sorted.
func Names() []string {
	entries, err := files.ReadDir(".")
	if err != nil {
		panic(err) // cannot happen: the files are embedded
	}
	list := make([]string, 0, len(entries))
	for _, e := range entries {
		list = append(list, strings.TrimSuffix(e.Name(), ".toml"))
	}
	slices.Sort(list)
	return list
}

// Find returns the agent with this name.
func Find(name string) (Agent, bool) {
	if !slices.Contains(Names(), name) {
		return Agent{}, false
	}
	a, err := read(name)
	if err != nil {
		panic(err) // cannot happen: a test reads every file
	}
	return a, true
}

func read(name string) (Agent, error) {
	doc, err := files.ReadFile(name + ".toml")
	if err != nil {
		return Agent{}, err
	}
	a := Agent{Name: name, Mode: "rw"}
	if err := toml.NewDecoder(bytes.NewReader(doc)).DisallowUnknownFields().Decode(&a); err != nil {
		return Agent{}, fmt.Errorf("%s.toml: %w", name, err)
	}
	return a, nil
}

// All returns the agents, sorted by name.
func All() []Agent {
	var list []Agent
	for _, name := range Names() {
		a, _ := Find(name)
		list = append(list, a)
	}
	return list
}
