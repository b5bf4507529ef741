package main

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"os"
	"strings"
)

// manifest is the manifest.json of an MCP bundle (.mcpb), in version 0.3 of the format.
type manifest struct {
	ManifestVersion string                `json:"manifest_version"`
	Name            string                `json:"name"`
	DisplayName     string                `json:"display_name"`
	Version         string                `json:"version"`
	Description     string                `json:"description"`
	LongDescription string                `json:"long_description"`
	Author          bundleAuthor          `json:"author"`
	Homepage        string                `json:"homepage"`
	License         string                `json:"license"`
	Server          bundleServer          `json:"server"`
	ToolsGenerated  bool                  `json:"tools_generated"`
	Compatibility   bundlePlatforms       `json:"compatibility"`
	UserConfig      map[string]userConfig `json:"user_config"`
}

// bundleAuthor is the author of a bundle.
type bundleAuthor struct {
	Name string `json:"name"`
	URL  string `json:"url"`
}

// bundleServer is the program that a host starts.
type bundleServer struct {
	Type       string `json:"type"`
	EntryPoint string `json:"entry_point"`
	Config     struct {
		Command string   `json:"command"`
		Args    []string `json:"args"`
	} `json:"mcp_config"`
}

// bundlePlatforms says where a bundle runs. The format knows no architectures.
type bundlePlatforms struct {
	Platforms []string `json:"platforms"`
}

// userConfig is a question that the host asks the person who installs a bundle.
type userConfig struct {
	Type        string `json:"type"`
	Title       string `json:"title"`
	Description string `json:"description"`
	Required    bool   `json:"required"`
	Multiple    bool   `json:"multiple"`
}

// bundleProgram is the path of the program in a bundle.
const bundleProgram = "server/rootsfs"

// manifest describes the bundle of a release.
func (r *release) manifest() manifest {
	m := manifest{
		ManifestVersion: "0.3", Name: r.Name, DisplayName: r.Name, Version: r.version.semver(),
		Description: r.Summary, LongDescription: strings.TrimSpace(r.Description),
		Author: bundleAuthor{r.Name, r.Homepage}, Homepage: r.Homepage, License: r.License, ToolsGenerated: true,
		Server: bundleServer{Type: "binary", EntryPoint: bundleProgram}, Compatibility: bundlePlatforms{[]string{"linux"}},
		UserConfig: map[string]userConfig{"directories": {
			Type: "directory", Title: "Directories", Required: true, Multiple: true,
			Description: "Directories that the model may read. It may write to none of them.",
		}},
	}
	m.Server.Config.Command = "${__dirname}/" + bundleProgram
	m.Server.Config.Args = []string{"serve", "${user_config.directories}"}
	return m
}

// bundleName returns the file name of the bundle for an architecture.
func (r *release) bundleName(arch string) string { return r.title(arch) + ".mcpb" }

// writeBundle writes the MCP bundle for an architecture: a zip archive.
func (r *release) writeBundle(s *stage) error {
	text, err := json.MarshalIndent(r.manifest(), "", "  ")
	if err != nil {
		return err
	}
	program, err := os.ReadFile(s.program(r.Name))
	if err != nil {
		return err
	}
	var b bytes.Buffer
	out := zip.NewWriter(&b)
	for _, m := range []member{{"manifest.json", 0o644, append(text, '\n')}, {bundleProgram, 0o755, program}} {
		h := &zip.FileHeader{Name: m.name, Method: zip.Deflate, Modified: r.version.date.UTC()}
		h.SetMode(m.mode)
		w, err := out.CreateHeader(h)
		if err != nil {
			return err
		}
		if _, err := w.Write(m.data); err != nil {
			return err
		}
	}
	if err := out.Close(); err != nil {
		return err
	}
	return os.WriteFile(r.path(r.bundleName(s.arch)), b.Bytes(), 0o644)
}
