package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/guard/guardtest"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// comparison is one call to each of two servers: rootsfs (ours) and server-filesystem (theirs). In
// the arguments and in the answers, $R stands for a directory that both servers have, read-only in
// ours. $W stands for a directory that each server has for itself, with the same contents.
type comparison struct {
	tool string
	args m
	// why is the reason for a difference. If why is "", the parsed answers are equal, and so are
	// the two $W after the call. Two errors count as equal, whatever their texts: the errors of
	// server-filesystem come from Node, with host paths; ours name the root, and say what to do.
	why          string
	ours, theirs string // a part of each server's text, if the texts differ
	// noted is a part of a second block that only our answer has. The rest of the answers is equal.
	noted  string
	writes bool // $W is filled again before the call
}

// Values of comparison.why that several rows have.
const (
	whyLossy   = "a note says that bytes are not shown as they are, and how to get them"
	whySpecial = "FIFOs, sockets and devices are not listed: opening one can block"
	whySecret  = "the built-in rules keep secrets out of reach"
	whyLinks   = "search_files finds each link that a listing shows, also a link that leads outside; only reading through the link is refused"
	whyPattern = "rootsfs refuses a pattern that the two glob libraries would read differently"
	whyOrder   = "sorted by bytes, as in list_directory: the order is the same on every machine and across pages"
	whyBytes   = "bytes stay as they are"
)

// readCalls are the calls that change nothing.
var readCalls = []comparison{
	{tool: "read_text_file", args: m{"path": "$R/a.txt"}},
	{tool: "read_file", args: m{"path": "$R/a.txt"}},
	{tool: "read_text_file", args: m{"path": "$R/a.txt", "head": 2}},
	{tool: "read_text_file", args: m{"path": "$R/a.txt", "head": 3}},
	{tool: "read_text_file", args: m{"path": "$R/a.txt", "head": 99}},
	{tool: "read_text_file", args: m{"path": "$R/a.txt", "head": 0}},
	{tool: "read_text_file", args: m{"path": "$R/a.txt", "tail": 0}},
	{tool: "read_text_file", args: m{"path": "$R/noeol", "head": 2}},
	{tool: "read_text_file", args: m{"path": "$R/noeol", "tail": 1}},
	{tool: "read_text_file", args: m{"path": "$R/noeol", "tail": 9}},
	{tool: "read_text_file", args: m{"path": "$R/lines", "head": 2}},
	{tool: "read_text_file", args: m{"path": "$R/empty"}},
	{tool: "read_text_file", args: m{"path": "$R/empty", "head": 1}},
	{tool: "read_text_file", args: m{"path": "$R/empty", "tail": 1}},
	{tool: "read_text_file", args: m{"path": "$R/crlf"}},
	{tool: "read_text_file", args: m{"path": "$R/crlf", "head": 1}},
	{tool: "read_text_file", args: m{"path": "$R/bom"}},
	{tool: "read_text_file", args: m{"path": "$R/in"}},
	{tool: "read_text_file", args: m{"path": "$R/way/b.md"}},
	{tool: "read_text_file", args: m{"path": "$R//sub/./b.md"}},
	{tool: "read_text_file", args: m{"path": "$R/a.txt", "head": 1, "tail": 1}},
	{tool: "read_text_file", args: m{"path": "$R/none"}},
	{tool: "read_text_file", args: m{"path": "$R/sub"}},
	{tool: "read_text_file", args: m{"path": "/etc/passwd"}},
	{tool: "read_text_file", args: m{"path": "$R/../outside/f"}},
	{tool: "read_text_file", args: m{"path": "$R-sibling/f"}},
	{tool: "read_text_file", args: m{"path": "$R/links/out"}},
	{tool: "read_text_file", args: m{"path": "$R/links/gone"}},
	{tool: "read_text_file", args: m{"path": "C:\\a.txt"}},
	{tool: "read_text_file", args: m{}},
	{tool: "read_text_file", args: m{"path": 1}},
	{tool: "read_text_file", args: m{"path": "$R/a.txt", "head": "2"}},
	{tool: "read_text_file", args: m{"path": "$R/a.txt", "tail": 1}, why: "a newline at the end of a file ends the last line, and begins no new one",
		ours: "three", theirs: ""},
	{tool: "read_text_file", args: m{"path": "$R/crlf-open", "tail": 2}, why: whyBytes, ours: "one\r\ntwo", theirs: "one\ntwo"},
	{tool: "read_text_file", args: m{"path": "$R/latin"}, why: whyLossy, noted: "U+FFFD"},
	{tool: "read_text_file", args: m{"path": "$R/long"}, why: "an answer is bounded, and says how to go on", ours: "x", theirs: "x"},
	{tool: "read_text_file", args: m{"path": "$R/a.txt", "head": -1}, why: "a negative head is a mistake of the model's: the error names the argument", ours: "head must be", theirs: ""},
	{tool: "read_text_file", args: m{"path": "$R/a.txt", "lines": 1}, why: "an unknown argument is a mistake of the model's", ours: `no field "lines"`, theirs: "one"},
	{tool: "read_text_file", args: m{"path": "$R/sub/../a.txt"}, why: "sub could be a link: then the name does not tell which directory .. is", ours: "..", theirs: "one"},
	{tool: "read_text_file", args: m{"path": "a.txt"}, why: "with several roots, a relative path must begin with a root's name; theirs takes the first directory", ours: "approved", theirs: "one"},
	{tool: "read_text_file", args: m{"path": "$R/cafe\u0301"}, why: "rules apply to exact names, so another Unicode spelling is another name", ours: "no such file", theirs: "accent"},
	{tool: "read_text_file", args: m{"path": "$R/secret/.env"}, why: whySecret, ours: "no such file", theirs: "SECRET"},
	{tool: "read_text_file", args: m{"path": "$R/hard"}},

	{tool: "read_media_file", args: m{"path": "$R/pic.png"}},
	{tool: "read_media_file", args: m{"path": "$R/PIC.JPG"}},
	{tool: "read_media_file", args: m{"path": "$R/snd.mp3"}},
	{tool: "read_media_file", args: m{"path": "$R/data.bin"}},
	{tool: "read_media_file", args: m{"path": "$R/sp ace#1%.bin"}},
	{tool: "read_media_file", args: m{"path": "$R/caf\u00e9"}},
	{tool: "read_media_file", args: m{"path": "$R/.png"}},
	{tool: "read_media_file", args: m{"path": "$R/picture"}},
	{tool: "read_media_file", args: m{"path": "$R/none.png"}},

	{tool: "read_multiple_files", args: m{"paths": []string{"$R/a.txt", "$R/sub/b.md", "$R/empty"}}},
	{tool: "read_multiple_files", args: m{"paths": []string{}}},
	{tool: "read_multiple_files", args: m{"paths": []string{"$R/a.txt", "$R/none"}}, why: "the text of the error", ours: "no such file", theirs: "ENOENT"},

	{tool: "list_directory", args: m{"path": "$R"}},
	{tool: "list_directory", args: m{"path": "$R/sub"}},
	{tool: "list_directory", args: m{"path": "$R/void"}},
	{tool: "list_directory", args: m{"path": "$R/links"}},
	{tool: "list_directory", args: m{"path": "$R/way"}},
	{tool: "list_directory", args: m{"path": "$R/a.txt"}},
	{tool: "list_directory", args: m{"path": "$R/none"}},
	{tool: "list_directory", args: m{"path": "$R/secret"}, why: whySecret, ours: "[FILE] x", theirs: "[FILE] .env"},
	{tool: "list_directory", args: m{"path": "$R/special"}, why: whySpecial, ours: "[FILE] plain", theirs: "[FILE] pipe"},
	{tool: "list_directory_with_sizes", args: m{"path": "$R/sub"}},
	{tool: "list_directory_with_sizes", args: m{"path": "$R/sizes"}},
	{tool: "list_directory_with_sizes", args: m{"path": "$R/sizes", "sortBy": "size"}},
	{tool: "list_directory_with_sizes", args: m{"path": "$R/sizes", "sortBy": "date"}},
	{tool: "list_directory_with_sizes", args: m{"path": "$R/void"}},
	{tool: "list_directory_with_sizes", args: m{"path": "$R/case"}, why: whyOrder, ours: "[FILE] B", theirs: "[FILE] a"},

	{tool: "directory_tree", args: m{"path": "$R/sub"}},
	{tool: "directory_tree", args: m{"path": "$R/void"}},
	{tool: "directory_tree", args: m{"path": "$R/links"}},
	{tool: "directory_tree", args: m{"path": "$R/glob"}},
	{tool: "directory_tree", args: m{"path": "$R/glob", "excludePatterns": []string{"deep"}}},
	{tool: "directory_tree", args: m{"path": "$R/glob", "excludePatterns": []string{"*.js"}}},
	{tool: "directory_tree", args: m{"path": "$R/glob", "excludePatterns": []string{"**/*.js", ".dot"}}},
	{tool: "directory_tree", args: m{"path": "$R/glob", "excludePatterns": []string{"a.js"}}},
	{tool: "directory_tree", args: m{"path": "$R/glob", "excludePatterns": []string{"deep/**"}}},
	{tool: "directory_tree", args: m{"path": "$R/a.txt"}},

	{tool: "search_files", args: m{"path": "$R/sub", "pattern": "**"}},
	{tool: "search_files", args: m{"path": "$R/way", "pattern": "**"}},
	{tool: "search_files", args: m{"path": "$R/void", "pattern": "**"}},
	{tool: "search_files", args: m{"path": "$R/none", "pattern": "**"}},
	{tool: "search_files", args: m{"path": "$R/a.txt", "pattern": "**"}},
	{tool: "search_files", args: m{"path": "$R/links", "pattern": "**"}, why: whyLinks, ours: "$R/links/out", theirs: "$R/links/here"},

	{tool: "get_file_info", args: m{"path": "$R/info"}},
	{tool: "get_file_info", args: m{"path": "$R/void"}},
	{tool: "get_file_info", args: m{"path": "$R/toinfo"}},
	{tool: "get_file_info", args: m{"path": "$R/none"}},
	{tool: "list_allowed_directories", args: m{}, why: "a note lists the roots' names and modes", noted: "read (ro) is $R"},
}

// globs are patterns of search_files. The test also tries each of them as an exclusion from **.
var globs = []string{
	"*.js", "**/*.js", "**", "*", "**/*", "deep", "deep/**", "deep/*", "deep/**/*.js", "**/deep", "**/deep/**", "**/x/**/*", "*.{js,md}",
	"{a,b}.js", "[ab].js", "[!a].js", "[^a].js", "[a-c]*", "?.js", "a*", "*a*", ".*", "**/.*", ".dot/*", "*.JS", "./a.js", "/a.js", "a.js/",
	"deep/", "**/", "a\\.js", "\\*", "star\\*", "**.js", "deep**", "**deep/**", "***", "{a.js}", "{}", "[", "[]", "a{b", "", "#*", "**/**/c.js", "sp ace*", "\u00e9*",
}

// differing has the patterns in globs that have different meanings in the two servers, with the
// reasons.
var differing = map[string]string{
	"[": whyPattern, "[]": whyPattern, "a{b": whyPattern,
	"#*": "a name may begin with #; minimatch takes a pattern that begins with # for a comment",
}

// Every tool of server-filesystem gives the same answer in rootsfs, on the same tree, except for
// the differences that a row or the variable differing explains.
func TestSameAsServerFilesystem(t *testing.T) {
	t.Setenv("LC_ALL", "C.UTF-8") // Node writes the names of time zones in the user's language
	p := newPair(t)
	t.Run("offered", p.compareLists)
	for i := range readCalls {
		p.compare(t, &readCalls[i])
	}
	for _, g := range globs {
		p.compare(t, &comparison{tool: "search_files", args: m{"path": "$R/glob", "pattern": g}, why: differing[g]})
		p.compare(t, &comparison{tool: "search_files", args: m{"path": "$R/glob", "pattern": "**", "excludePatterns": []string{g}}, why: differing[g]})
	}
	for i := range writeCalls {
		writeCalls[i].writes = true
		p.compare(t, &writeCalls[i])
	}
}

// pair has both servers and their directories.
type pair struct {
	ours, theirs     *stdioServer
	read             string // the path of $R
	ourDir, theirDir string // the path of each server's $W
	outside          string // a directory outside of $R and $W
}

func newPair(t *testing.T) *pair {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	testkit.Must(t, err)
	p := &pair{read: filepath.Join(base, "r"), ourDir: filepath.Join(base, "w1"), theirDir: filepath.Join(base, "w2"), outside: filepath.Join(base, "outside")}
	guardtest.Tree(t, base, "", "r/", "w1/", "w2/", "outside/f=outside", "r-sibling/f=sibling")
	guardtest.Tree(t, p.read, p.outside, filesInR...)
	testkit.Must(t, os.WriteFile(filepath.Join(p.read, "long"), []byte(strings.Repeat("x", 5<<20)), 0o644))
	testkit.Must(t, os.Link(filepath.Join(p.outside, "f"), filepath.Join(p.read, "hard")))
	h := newHome(t)
	p.ours = h.serve("--root", "read="+p.read+":ro", "--root", "work="+p.ourDir+":rw")
	p.theirs = open(t, needPeers(t).Server(context.Background(), "filesystem", io.Discard, p.read, p.theirDir))
	return p
}

// filesInR is the content of $R.
var filesInR = []string{
	"a.txt=one\ntwo\nthree\n", "empty=", "noeol=one\ntwo", "lines=\n\n\nx\n", "crlf=one\r\ntwo\r\n", "crlf-open=zero\r\none\r\ntwo",
	"latin=caf\xe9 \xff\xfe \xe2\x82x \xf0\x9f\x98 \xed\xa0\x80 end\n", "bom=\ufeffx\n", "sub/b.md=b", "sub/deep/c.txt=c", "void/",
	"pic.png=\x89PNG\xff", "PIC.JPG=\xff\xd8", "snd.mp3=ID3", "data.bin=\x00\x01", "sp ace#1%.bin=x", ".png=x", "caf\u00e9=accent", "secret/.env=SECRET", "secret/x=",
	"in => a.txt", "way => sub", "picture => pic.png", "links/out => $OUT/f", "links/gone => nowhere", "links/here => ../a.txt", "links/dir => ../sub",
	"special/pipe|", "special/plain=x", "case/B=x", "case/a=x",
	"sizes/b0=", "sizes/b1=" + strings.Repeat("x", 1023), "sizes/b2=" + strings.Repeat("x", 1024), "sizes/b3=" + strings.Repeat("x", 1<<20),
	"sizes/dir/x=1", "sizes/link => b2", "sizes/name-that-is-longer-than-thirty-characters=1",
	"glob/a.js=", "glob/b.js=", "glob/c.md=", "glob/deep/a.js=", "glob/deep/x/c.js=", "glob/deep/x/y/d.md=", "glob/.dot/a.js=", "glob/.hidden=", "glob/star*=",
	"glob/sp ace.txt=", "glob/\u00e9t\u00e9=", "glob/#x=", "glob/A.JS=", "glob/{a.js}=", "glob/ab=",
	"0640 info=12345", "toinfo => info",
}

// compare sends one call to both servers and compares their answers. Unless c.noted is set, it
// compares their $W, too.
func (p *pair) compare(t *testing.T, c *comparison) {
	t.Helper()
	args, err := json.Marshal(c.args)
	testkit.Must(t, err)
	t.Run(fmt.Sprintf("%s %s", c.tool, args), func(t *testing.T) {
		if c.writes {
			p.renew(t)
		}
		ours, theirs := p.ask(p.ours, c, p.ourDir), p.ask(p.theirs, c, p.theirDir)
		if c.noted != "" {
			if !strings.Contains(ours.note(), c.noted) || !reflect.DeepEqual(ours.Content[:1], theirs.Content) || !reflect.DeepEqual(ours.StructuredContent, theirs.StructuredContent) {
				t.Errorf("ours:\n%.1000s\ntheirs:\n%.1000s", ours, theirs)
			}
			return
		}
		same := ours.failed() && theirs.failed() || reflect.DeepEqual(ours, theirs)
		one, two := state(t, p.ourDir), state(t, p.theirDir)
		if one != two {
			same = false
		}
		switch {
		case same && c.why != "":
			t.Errorf("the row says that the answers differ (%s), but they do not:\n%.500s", c.why, ours)
		case !same && c.why == "":
			t.Errorf("ours:\n%.1000s\ntheirs:\n%.1000s\nafter ours:\n%s\nafter theirs:\n%s", ours, theirs, one, two)
		case !strings.Contains(ours.text(), c.ours) || !strings.Contains(theirs.text(), c.theirs):
			t.Errorf("%s: ours:\n%.1000s\ntheirs:\n%.1000s\nwant %q and %q", c.why, ours, theirs, c.ours, c.theirs)
		}
	})
}

// renew empties the $W of each server and creates the files of filesInW there.
func (p *pair) renew(t *testing.T) {
	for _, dir := range []string{p.ourDir, p.theirDir} {
		list, err := os.ReadDir(dir)
		testkit.Must(t, err)
		for _, e := range list {
			testkit.Must(t, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
		guardtest.Tree(t, dir, p.outside, filesInW...)
	}
}

// ask sends a call to one server. own is the path of the server's $W. In the returned answer, $R
// and $W stand for the paths of the directories.
func (p *pair) ask(s *stdioServer, c *comparison, own string) *answer {
	args, err := json.Marshal(c.args)
	testkit.Must(s.t, err)
	text := strings.NewReplacer("$R", p.read, "$W", own).Replace(string(args))
	r := s.call("tools/call", map[string]any{"name": c.tool, "arguments": json.RawMessage(text)})
	r.Result = json.RawMessage(strings.NewReplacer(own, "$W", p.read, "$R").Replace(string(r.Result)))
	return s.parse(c.tool, r)
}

// state describes the contents of a tree: names, kinds, modes, links and file contents.
func state(t testing.TB, dir string) string {
	t.Helper()
	var all strings.Builder
	testkit.Must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := ""
		switch {
		case info.Mode().IsRegular():
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text = string(b)
		case info.Mode()&fs.ModeSymlink != 0:
			if text, err = os.Readlink(path); err != nil {
				return err
			}
		}
		fmt.Fprintf(&all, "%s %v %q\n", strings.TrimPrefix(path, dir+"/"), info.Mode(), text)
		return nil
	}))
	return all.String()
}

// toolInfo is a tool in the answer to tools/list.
type toolInfo struct {
	Name, Title  string
	InputSchema  schema
	OutputSchema any
	Annotations  struct {
		ReadOnlyHint, IdempotentHint   bool
		DestructiveHint, OpenWorldHint *bool
	}
}

type schema struct {
	Type       string
	Properties map[string]map[string]any
	Required   []string
}

// extraArguments lists the arguments that only the tools of rootsfs take. All are optional.
var extraArguments = map[string][]string{
	"list_directory": {"cursor"}, "list_directory_with_sizes": {"cursor"}, "directory_tree": {"cursor", "depth"}, "search_files": {"cursor"},
	"move_file": {"overwrite"},
}

// compareLists compares the answers to tools/list, for each tool of server-filesystem: the title,
// the arguments, the annotations and the output schema. It does not compare the descriptions of
// tools, which differ because our tools also take paths that begin with a root's name.
func (p *pair) compareLists(t *testing.T) {
	list := func(s *stdioServer) map[string]toolInfo {
		var res struct{ Tools []toolInfo }
		testkit.Must(t, json.Unmarshal(s.call("tools/list", map[string]any{}).Result, &res))
		out := map[string]toolInfo{}
		for _, l := range res.Tools {
			out[l.Name] = l
		}
		return out
	}
	ours, theirs := list(p.ours), list(p.theirs)
	if len(theirs) != 14 {
		t.Errorf("server-filesystem has %d tools, and 14 are known", len(theirs))
	}
	for name, their := range theirs {
		our, ok := ours[name]
		if !ok {
			t.Errorf("%s is missing", name)
			continue
		}
		slices.Sort(our.InputSchema.Required)
		slices.Sort(their.InputSchema.Required)
		if our.Title != their.Title || !reflect.DeepEqual(our.Annotations, their.Annotations) || !slices.Equal(our.InputSchema.Required, their.InputSchema.Required) {
			t.Errorf("%s: ours %+v, theirs %+v", name, our, their)
		}
		if o, ok := their.OutputSchema.(map[string]any); ok {
			delete(o, "$schema") // the version of JSON Schema
		}
		if !reflect.DeepEqual(our.OutputSchema, their.OutputSchema) {
			t.Errorf("%s: the output schemas are %v and %v", name, our.OutputSchema, their.OutputSchema)
		}
		for arg, their := range their.InputSchema.Properties {
			our := our.InputSchema.Properties[arg]
			if their["description"] == nil {
				delete(our, "description")
			}
			if !reflect.DeepEqual(our, their) {
				t.Errorf("%s, argument %s: ours %v, theirs %v", name, arg, our, their)
			}
		}
		for arg := range our.InputSchema.Properties {
			if their.InputSchema.Properties[arg] == nil && !slices.Contains(extraArguments[name], arg) {
				t.Errorf("%s takes %s, which is not on the list", name, arg)
			}
		}
	}
}
