package consent

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The table in .github/SECURITY.md has the same rows as mayAnswer, each with the same answerers in
// the same order.
func TestAnswerersAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../../.github/SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "\n## Who may answer what\n")
	if !found {
		t.Fatal("SECURITY.md has no section \"Who may answer what\"")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	documented := map[Way]string{}
	for _, row := range regexp.MustCompile(`(?m)^\| (.*) \| (.*) \|$`).FindAllStringSubmatch(section, -1) {
		if row[1] != "who asks" {
			documented[Way(row[1])] = row[2]
		}
	}
	for way, list := range mayAnswer {
		var texts []string
		for _, a := range list {
			texts = append(texts, string(a))
		}
		want := strings.Join(texts, "; ")
		if len(list) == 0 {
			want = "nobody"
		}
		if got := documented[way]; got != want {
			t.Errorf("SECURITY.md: %s: %q; the code: %q", way, got, want)
		}
		delete(documented, way)
	}
	for way := range documented {
		t.Errorf("SECURITY.md has a row that the code lacks: %s", way)
	}
}
