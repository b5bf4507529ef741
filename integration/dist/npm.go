package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// npmArches are Node's names of architectures.
var npmArches = map[string]string{"amd64": "x64", "arm64": "arm64"}

// npmPackage is a package.json.
type npmPackage struct {
	Name         string            `json:"name"`
	Version      string            `json:"version"`
	Description  string            `json:"description"`
	License      string            `json:"license"`
	Homepage     string            `json:"homepage"`
	Repository   npmRepository     `json:"repository"`
	MCPName      string            `json:"mcpName,omitempty"` // proves to the MCP registry whose package it is
	Keywords     []string          `json:"keywords,omitempty"`
	Bin          map[string]string `json:"bin,omitempty"`
	OS           []string          `json:"os,omitempty"`
	CPU          []string          `json:"cpu,omitempty"`
	Engines      map[string]string `json:"engines,omitempty"`
	Files        []string          `json:"files"`
	Optional     map[string]string `json:"optionalDependencies,omitempty"`
	PreferUnplug bool              `json:"preferUnplugged,omitempty"` // a program cannot be started inside an archive
}

// npmRepository says where a package's source is.
type npmRepository struct {
	Type string `json:"type"`
	URL  string `json:"url"`
}

// npmName returns the name of the package that holds an architecture's program.
func (d *description) npmName(arch string) string {
	return d.NPM.Scope + "/linux-" + npmArches[arch]
}

// npmFile returns the name that npm gives the file of a package.
func npmFile(name, version string) string {
	return strings.ReplaceAll(strings.TrimPrefix(name, "@"), "/", "-") + "-" + version + ".tgz"
}

// npm returns the fields that all packages share.
func (r *release) npm(name string) npmPackage {
	return npmPackage{
		Name: name, Version: r.version.semver(), Description: r.Summary, License: r.License, Homepage: r.Homepage,
		Repository: npmRepository{"git", "git+" + r.Homepage + ".git"},
	}
}

// writeNPM writes the package that users install. The package has no program, but a script that
// starts the program of another package, the one for the user's platform.
func (r *release) writeNPM() error {
	p := r.npm(r.NPM.Package)
	p.MCPName, p.Keywords = r.Registry.Name, []string{"mcp", "sandbox", "filesystem", "fuse"}
	p.Bin, p.Files, p.Engines = map[string]string{r.Name: "bin/rootsfs.js"}, []string{"bin"}, map[string]string{"node": ">=18"}
	p.Optional = map[string]string{}
	for _, arch := range r.Arches {
		p.Optional[r.npmName(arch)] = r.version.semver()
	}
	script, err := os.ReadFile(filepath.Join(r.dir, "files", "npm.js"))
	if err != nil {
		return err
	}
	script = bytes.ReplaceAll(script, []byte("@SCOPE@"), []byte(r.NPM.Scope))
	readme, err := os.ReadFile(filepath.Join(r.dir, "..", "..", "README.md"))
	if err != nil {
		return err
	}
	return r.pack(p, member{"package/README.md", 0o644, readme}, member{"package/bin/rootsfs.js", 0o755, script})
}

// writePlatformNPM writes the package that holds an architecture's program.
func (r *release) writePlatformNPM(s *stage) error {
	if npmArches[s.arch] == "" {
		return fmt.Errorf("npm has no name for %s", s.arch)
	}
	p := r.npm(r.npmName(s.arch))
	p.OS, p.CPU, p.Files, p.PreferUnplug = []string{"linux"}, []string{npmArches[s.arch]}, []string{"bin"}, true
	program, err := os.ReadFile(s.program(r.Name))
	if err != nil {
		return err
	}
	return r.pack(p, member{"package/bin/rootsfs", 0o755, program})
}

// pack writes a package as `npm pack` does.
func (r *release) pack(p npmPackage, members ...member) error {
	text, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	license, err := os.ReadFile(filepath.Join(r.dir, "..", "..", "LICENSE"))
	if err != nil {
		return err
	}
	members = append([]member{{"package/package.json", 0o644, append(text, '\n')}, {"package/LICENSE", 0o644, license}}, members...)
	return writeTarGz(r.path(npmFile(p.Name, p.Version)), r.version.date, members)
}
