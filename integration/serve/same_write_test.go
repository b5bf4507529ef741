package serve

// filesInW is the content of $W before each call of writeCalls.
var filesInW = []string{
	"a.txt=one\ntwo\nthree\n", "0640 mode.sh=x", "crlf=one\r\ntwo\r\n", "latin=caf\xe9\n", "open=one\ntwo", "ticks=```\ncode\n```\n",
	"code.go=func f() {\n\tif x {\n\t\tone()\n\t\ttwo()\n\t}\n}\n", "long=1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n13\n14\n15\n16\n17\n18\n19\n20\n",
	"d/x=1", "d/y=2", "e/", "link => a.txt", "dangling => new", "out => $OUT/f", "away => $OUT", "way => d",
}

// edits returns the argument edits of edit_file, from pairs of an old and a new text.
func edits(pairs ...string) (list []m) {
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, m{"oldText": pairs[i], "newText": pairs[i+1]})
	}
	return list
}

// writeCalls are the calls of tools that change files.
var writeCalls = []comparison{
	{tool: "write_file", args: m{"path": "$W/n.txt", "content": "new\r\n\u00e9\U0001f600"}},
	{tool: "write_file", args: m{"path": "$W/n.txt", "content": ""}},
	{tool: "write_file", args: m{"path": "$W/mode.sh", "content": "y"}},
	{tool: "write_file", args: m{"path": "$W/d/x", "content": "y"}},
	{tool: "write_file", args: m{"path": "$W/link", "content": "y"}},
	{tool: "write_file", args: m{"path": "$W/way/z", "content": "y"}},
	{tool: "write_file", args: m{"path": "$W/d", "content": "y"}},
	{tool: "write_file", args: m{"path": "$W/none/x", "content": "y"}},
	{tool: "write_file", args: m{"path": "$W/dangling", "content": "y"}},
	{tool: "write_file", args: m{"path": "$W/out", "content": "y"}},
	{tool: "write_file", args: m{"path": "$W/away/n", "content": "y"}},
	{tool: "write_file", args: m{"path": "$W/n.txt"}},
	{tool: "write_file", args: m{"path": "/tmp/rootsfs-nothing", "content": "y"}},

	{tool: "edit_file", args: m{"path": "$W/a.txt", "edits": edits("two", "2")}},
	{tool: "edit_file", args: m{"path": "$W/a.txt", "edits": edits("two", "2"), "dryRun": true}},
	{tool: "edit_file", args: m{"path": "$W/a.txt", "edits": edits("one", "1", "1\ntwo", "1\n2\n2.5", "three\n", "")}},
	{tool: "edit_file", args: m{"path": "$W/a.txt", "edits": edits("t", "$&$1T")}},
	{tool: "edit_file", args: m{"path": "$W/a.txt", "edits": edits("two", "two")}},
	{tool: "edit_file", args: m{"path": "$W/a.txt", "edits": []m{}}},
	{tool: "edit_file", args: m{"path": "$W/a.txt", "edits": edits("nowhere", "x")}},
	{tool: "edit_file", args: m{"path": "$W/a.txt", "edits": edits("one", "1", "nowhere", "x")}},
	{tool: "edit_file", args: m{"path": "$W/a.txt", "edits": edits("three\n", "three")}},
	{tool: "edit_file", args: m{"path": "$W/a.txt", "edits": edits("one\ntwo\nthree\n", "")}},
	{tool: "edit_file", args: m{"path": "$W/open", "edits": edits("two", "2")}},
	{tool: "edit_file", args: m{"path": "$W/open", "edits": edits("two", "two\n")}},
	{tool: "edit_file", args: m{"path": "$W/ticks", "edits": edits("code", "text")}},
	{tool: "edit_file", args: m{"path": "$W/long", "edits": edits("2\n3\n", "two\n", "18", "eighteen\nand more")}},
	{tool: "edit_file", args: m{"path": "$W/long", "edits": edits("\n9\n", "\nnine\n", "\n11\n", "\n")}},
	{tool: "edit_file", args: m{"path": "$W/code.go", "edits": edits("one()\ntwo()", "1()\n2()")}},
	{tool: "edit_file", args: m{"path": "$W/code.go", "edits": edits("  if x {\n    one()\n", "  if y {\n    one()\n      more()\n")}},
	{tool: "edit_file", args: m{"path": "$W/code.go", "edits": edits("if x {\r\n\t\tone()", "if z {\r\n\t\tone()")}},
	{tool: "edit_file", args: m{"path": "$W/mode.sh", "edits": edits("x", "y")}},
	{tool: "edit_file", args: m{"path": "$W/link", "edits": edits("two", "2")}},
	{tool: "edit_file", args: m{"path": "$W/out", "edits": edits("outside", "x")}},
	{tool: "edit_file", args: m{"path": "$W/d", "edits": edits("a", "b")}},
	{tool: "edit_file", args: m{"path": "$W/none", "edits": edits("a", "b")}},
	{tool: "edit_file", args: m{"path": "$W/crlf", "edits": edits("two", "2")}, why: whyBytes, ours: "+2", theirs: "+2"},
	{tool: "edit_file", args: m{"path": "$W/latin", "edits": edits("caf", "tea")}, why: "an edit would destroy bytes that are not UTF-8", ours: "not UTF-8", theirs: "+tea"},
	{tool: "edit_file", args: m{"path": "$W/a.txt", "edits": edits("", "x")}, why: "an empty oldText is a mistake of the model's", ours: "oldText is empty", theirs: "+xone"},

	{tool: "create_directory", args: m{"path": "$W/p/q/r"}},
	{tool: "create_directory", args: m{"path": "$W/d"}},
	{tool: "create_directory", args: m{"path": "$W/way/n"}},
	{tool: "create_directory", args: m{"path": "$W/a.txt"}},
	{tool: "create_directory", args: m{"path": "$W/a.txt/n"}},
	{tool: "create_directory", args: m{"path": "$W/away/n"}},

	{tool: "move_file", args: m{"source": "$W/a.txt", "destination": "$W/n"}},
	{tool: "move_file", args: m{"source": "$W/d", "destination": "$W/e/n"}},
	{tool: "move_file", args: m{"source": "$W/d/x", "destination": "$W/way/z"}},
	{tool: "move_file", args: m{"source": "$W/a.txt", "destination": "$W/mode.sh"}},
	{tool: "move_file", args: m{"source": "$W/a.txt", "destination": "$W/e"}},
	{tool: "move_file", args: m{"source": "$W/a.txt", "destination": "$W/a.txt"}},
	{tool: "move_file", args: m{"source": "$W/d", "destination": "$W/d/n"}},
	{tool: "move_file", args: m{"source": "$W/none", "destination": "$W/n"}},
	{tool: "move_file", args: m{"source": "$W/a.txt", "destination": "$W/none/n"}},
	{tool: "move_file", args: m{"source": "$W/a.txt", "destination": "$W/away/n"}},
	{tool: "move_file", args: m{"source": "$W/out", "destination": "$W/e/out"}, why: "the link itself is moved, and stays a link", ours: "Successfully", theirs: "Access denied"},
	{tool: "move_file", args: m{"source": "$W/link", "destination": "$W/n"}, why: "the link itself is moved, not its target", ours: "Successfully", theirs: "Successfully"},
	{tool: "move_file", args: m{"source": "$W/dangling", "destination": "$W/n"}, why: "the link itself is moved, wherever it leads", ours: "Successfully", theirs: "Parent directory"},
}
