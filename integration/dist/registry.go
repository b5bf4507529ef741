package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strings"

	registry "github.com/modelcontextprotocol/registry/pkg/api/v0"
	"github.com/modelcontextprotocol/registry/pkg/model"
)

// writeServer writes server.json, by which the release is announced to the MCP registry:
// the npm package, and the bundles at the release's address.
func (r *release) writeServer() error {
	stdio := model.Transport{Type: model.TransportTypeStdio}
	directories := model.Argument{Type: model.ArgumentTypePositional, ValueHint: "directory", IsRepeated: true}
	directories.Description, directories.IsRequired, directories.Format = "A directory that the model may read, or DIRECTORY:rw for one that it may change too", true, model.FormatFilePath
	serve := model.Argument{Type: model.ArgumentTypePositional}
	serve.Value = "serve"
	packages := []model.Package{{
		RegistryType: model.RegistryTypeNPM, RegistryBaseURL: model.RegistryURLNPM, Identifier: r.NPM.Package, Version: r.version.semver(),
		RunTimeHint: model.RuntimeHintNPX, Transport: stdio, PackageArguments: []model.Argument{serve, directories},
	}}
	for _, arch := range r.Arches {
		name := r.bundleName(arch)
		data, err := os.ReadFile(r.path(name))
		if err != nil {
			return err
		}
		packages = append(packages, model.Package{
			RegistryType: model.RegistryTypeMCPB, Identifier: r.Downloads + "/" + url.PathEscape(r.version.name) + "/" + name,
			FileSHA256: fmt.Sprintf("%x", sha256.Sum256(data)), Transport: stdio,
		})
	}
	server := registry.ServerJSON{
		Schema: model.CurrentSchemaURL, Name: r.Registry.Name, Title: r.Name, Description: r.Summary, Version: r.version.semver(),
		WebsiteURL: r.Homepage, Packages: packages,
	}
	if strings.HasPrefix(r.Homepage, model.RegistryURLGitHub+"/") {
		server.Repository = &model.Repository{URL: r.Homepage, Source: "github"}
	}
	text, err := json.MarshalIndent(server, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(r.path("server.json"), append(text, '\n'), 0o644)
}
