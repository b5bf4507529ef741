package main

import (
	"debug/buildinfo"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"time"
)

// bom is a software bill of materials in CycloneDX's JSON, of version 1.5.
type bom struct {
	Format     string         `json:"bomFormat"`
	Spec       string         `json:"specVersion"`
	Version    int            `json:"version"`
	Metadata   bomMetadata    `json:"metadata"`
	Components []bomComponent `json:"components"`
	Relations  []bomRelation  `json:"dependencies"`
}

// bomMetadata names the program of a bill.
type bomMetadata struct {
	Timestamp string       `json:"timestamp"`
	Component bomComponent `json:"component"`
}

// bomComponent is a program, or a module that it is made of.
type bomComponent struct {
	Type       string        `json:"type"`
	Ref        string        `json:"bom-ref"`
	Name       string        `json:"name"`
	Version    string        `json:"version"`
	PURL       string        `json:"purl"`
	Properties []bomProperty `json:"properties,omitempty"`
}

// bomProperty is a fact that the format has no key for.
type bomProperty struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// bomRelation says that a component is made of others.
type bomRelation struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn"`
}

// writeMaterials writes the bill of the modules that an architecture's program is made of, as the
// program itself records them. Each module, except the standard library, has its checksum from
// go.sum.
func (r *release) writeMaterials(s *stage) error {
	info, err := buildinfo.ReadFile(s.program(r.Name))
	if err != nil {
		return err
	}
	main := golangComponent("application", info.Main.Path, r.version.name)
	main.Properties = []bomProperty{{"rootsfs:commit", r.version.commit}, {"rootsfs:platform", "linux/" + s.arch}}
	relation := bomRelation{Ref: main.Ref}
	standard := golangComponent("library", "std", strings.TrimPrefix(info.GoVersion, "go"))
	components := []bomComponent{standard}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		c := golangComponent("library", m.Path, m.Version)
		c.Properties = []bomProperty{{"go:sum", m.Sum}}
		components = append(components, c)
	}
	slices.SortFunc(components, func(a, b bomComponent) int { return strings.Compare(a.Ref, b.Ref) })
	for _, c := range components {
		relation.DependsOn = append(relation.DependsOn, c.Ref)
	}
	text, err := json.MarshalIndent(bom{
		Format: "CycloneDX", Spec: "1.5", Version: 1,
		Metadata:   bomMetadata{r.version.date.UTC().Format(time.RFC3339), main},
		Components: components, Relations: []bomRelation{relation},
	}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(r.path(r.title(s.arch)+".cdx.json"), append(text, '\n'), 0o644)
}

// golangComponent describes a module. Other parts of the bill refer to the module by its package
// URL.
func golangComponent(kind, path, version string) bomComponent {
	purl := "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
	return bomComponent{Type: kind, Ref: purl, Name: path, Version: version, PURL: purl}
}
