package tools

import (
	"encoding/json"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/guard"
)

// catalog has every tool. The first fourteen are those of server-filesystem, with its names,
// annotations and schemas. Arguments that server-filesystem does not have are optional.
var catalog = sync.OnceValue(func() []tool { return append(serverFilesystemTools(), furtherTools()...) })

// textOut is the output schema of all tools but read_media_file.
const textOut = `{"type":"object","properties":{"content":{"type":"string"}},"required":["content"],"additionalProperties":false}`

const mediaOut = `{"type":"object","properties":{"content":{"type":"array","items":{"anyOf":[` +
	`{"type":"object","properties":{"type":{"type":"string","enum":["image","audio"]},"data":{"type":"string"},"mimeType":{"type":"string"}},"required":["type","data","mimeType"],"additionalProperties":false},` +
	`{"type":"object","properties":{"type":{"type":"string","const":"resource"},"resource":{"type":"object","properties":{"uri":{"type":"string"},"mimeType":{"type":"string"},"blob":{"type":"string"}},"required":["uri","blob"],"additionalProperties":false}},"required":["type","resource"],"additionalProperties":false}]}}},` +
	`"required":["content"],"additionalProperties":false}`

// Parts of input schemas.
const (
	pathIn    = `"path":{"type":"string","description":"ROOT/path, an absolute path inside a root, or a file:// URI"}`
	cursorIn  = `"cursor":{"type":"string","description":"goes on where an earlier answer ended"}`
	excludeIn = `"excludePatterns":{"type":"array","items":{"type":"string"},"default":[]}`
)

func object(props, required string) string {
	return `{"type":"object","properties":{` + props + `},"required":[` + required + `]}`
}

func readAnnotations() *mcp.ToolAnnotations {
	return &mcp.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: new(bool)}
}

func writeAnnotations(idempotent, destructive bool) *mcp.ToolAnnotations {
	return &mcp.ToolAnnotations{IdempotentHint: idempotent, DestructiveHint: &destructive, OpenWorldHint: new(bool)}
}

// serverFilesystemTools returns the tools of server-filesystem, in its order.
func serverFilesystemTools() []tool {
	const lines = `"tail":{"description":"If provided, returns only the last N lines of the file","type":"number"},"head":{"description":"If provided, returns only the first N lines of the file","type":"number"}`
	textIn := object(pathIn+","+lines, `"path"`)
	media := row("read_media_file", "Read Media File",
		"Read a file as a base64 block: an image or audio block by the file's extension, otherwise an embedded resource.",
		object(pathIn, `"path"`), readAnnotations(), guard.Read, (*call).readMediaFile)
	media.def.OutputSchema = json.RawMessage(mediaOut)
	return []tool{
		row("read_file", "Read File (Deprecated)", "Read a file as text. DEPRECATED: use read_text_file.", textIn, readAnnotations(), guard.Read, (*call).readTextFile),
		row("read_text_file", "Read Text File",
			"Read a file as text, whole, or its first lines (head) or last lines (tail). A long file ends with how to go on.",
			textIn, readAnnotations(), guard.Read, (*call).readTextFile),
		media,
		row("read_multiple_files", "Read Multiple Files",
			"Read several files as text. For a file that cannot be read the answer has the reason.",
			object(`"paths":{"minItems":1,"type":"array","items":{"type":"string"},"description":"Array of file paths to read. Each path must be a string pointing to a valid file within allowed directories."}`, `"paths"`),
			readAnnotations(), guard.Read, (*call).readMultipleFiles),
		row("write_file", "Write File",
			"Create a file, or replace the contents of an existing one, all at once. The old contents are lost.",
			object(pathIn+`,"content":{"type":"string"}`, `"path","content"`), writeAnnotations(true, true), guard.Write|guard.Create, (*call).writeFile),
		row("edit_file", "Edit File",
			"Replace texts in a UTF-8 file, each edit its first match, and show the difference as a git-style patch. Line ends, mode and all other bytes stay as they are; with dryRun nothing is written.",
			object(pathIn+`,"edits":{"type":"array","items":{"type":"object","properties":{"oldText":{"type":"string","description":"Text to search for - must match exactly"},"newText":{"type":"string","description":"Text to replace with"}},"required":["oldText","newText"]}},"dryRun":{"default":false,"description":"Preview changes using git-style diff format","type":"boolean"}`, `"path","edits"`),
			writeAnnotations(false, true), guard.Write, (*call).editFile),
		row("create_directory", "Create Directory", "Create a directory and the missing ones above it. An existing directory is fine.",
			object(pathIn, `"path"`), writeAnnotations(true, false), guard.Create, (*call).createDirectory),
		row("list_directory", "List Directory", "List a directory: a line for each name, [DIR] or [FILE] before it.",
			object(pathIn+","+cursorIn, `"path"`), readAnnotations(), guard.List, (*call).listDirectory),
		row("list_directory_with_sizes", "List Directory with Sizes", "List a directory with the sizes of its files, and their sum.",
			object(pathIn+`,"sortBy":{"default":"name","description":"Sort entries by name or size","type":"string","enum":["name","size"]},`+cursorIn, `"path"`),
			readAnnotations(), guard.List, (*call).listWithSizes),
		row("directory_tree", "Directory Tree",
			"The tree below a directory as JSON: name, type (file or directory), and children of directories. depth bounds how many levels.",
			object(pathIn+","+excludeIn+`,"depth":{"type":"integer","minimum":0,"description":"levels to show; 0: all"},`+cursorIn, `"path"`),
			readAnnotations(), guard.List, (*call).directoryTree),
		row("move_file", "Move File",
			"Move or rename a file, link or directory. An existing destination is refused, unless overwrite is set.",
			object(`"source":{"type":"string"},"destination":{"type":"string"},"overwrite":{"type":"boolean","default":false}`, `"source","destination"`),
			writeAnnotations(false, true), guard.Rename, (*call).moveFile),
		row("search_files", "Search Files",
			"Find files and directories whose path below the given directory matches a glob: *.go there, **/*.go at any depth. One path a line.",
			object(pathIn+`,"pattern":{"type":"string"},`+excludeIn+","+cursorIn, `"path","pattern"`), readAnnotations(), guard.List, (*call).searchFiles),
		row("get_file_info", "Get File Info", "Size, times, type and permissions of a file or directory.",
			object(pathIn, `"path"`), readAnnotations(), guard.Read|guard.List, (*call).getFileInfo),
		row("list_allowed_directories", "List Allowed Directories", "List the roots: the directories whose contents may be reached.",
			object("", ""), readAnnotations(), 0, (*call).listAllowed),
	}
}

// furtherTools returns the tools that server-filesystem does not have.
func furtherTools() []tool {
	return []tool{
		row("read_file_range", "Read a Part of a File",
			"Read a part of a file: by bytes (offset, length), or by lines (startLine, endLine, counted from 1 at offset). encoding base64 gives bytes as they are. The answer says how to go on.",
			object(pathIn+`,"offset":{"type":"integer","minimum":0},"length":{"type":"integer","minimum":0},"startLine":{"type":"integer","minimum":1},"endLine":{"type":"integer","minimum":1},"encoding":{"type":"string","enum":["utf-8","base64"],"default":"utf-8"}`, `"path"`),
			readAnnotations(), guard.Read, (*call).readFileRange),
		row("search_within_files", "Search Within Files",
			"Find lines in text files: a substring or an RE2 regular expression, as path:line: text. include is a glob for the files; contextLines shows lines around. As with ripgrep, what .gitignore files and .git/info/exclude below the root name is left out, and .git itself, unless path names it or respect_gitignore is false; files whose names begin with a dot are searched.",
			object(pathIn+`,"substring":{"type":"string"},"regex":{"type":"string"},"ignoreCase":{"type":"boolean","default":false},"include":{"type":"string"},`+excludeIn+`,"contextLines":{"type":"integer","minimum":0,"maximum":20},"depth":{"type":"integer","minimum":0},"max_results":{"type":"integer","minimum":1,"maximum":10000},"respect_gitignore":{"type":"boolean","default":true},`+cursorIn, `"path"`),
			readAnnotations(), guard.Read, (*call).searchWithinFiles),
		row("append_file", "Append to File", "Write at the end of a file. With create, a missing file is created.",
			object(pathIn+`,"content":{"type":"string"},"create":{"type":"boolean","default":false}`, `"path","content"`),
			writeAnnotations(false, false), guard.Write|guard.Append, (*call).appendFile),
		row("copy_file", "Copy File", "Copy a file. The copy appears at once; an existing destination is refused, unless overwrite is set.",
			object(`"source":{"type":"string"},"destination":{"type":"string"},"overwrite":{"type":"boolean","default":false}`, `"source","destination"`),
			writeAnnotations(false, false), guard.Create|guard.Write, (*call).copyFile),
		row("delete_file", "Delete File", "Delete a file, a link (not what it leads to) or an empty directory; with recursive, a directory with all that is in it.",
			object(pathIn+`,"recursive":{"type":"boolean","default":false}`, `"path"`), writeAnnotations(false, true), guard.Delete, (*call).deleteFile),
	}
}
