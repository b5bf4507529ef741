package export

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/audit"
	"github.com/rootsfs/rootsfs/guard/names"
)

// ocsfVersion is the version of the schema whose numbers are used here: https://schema.ocsf.io/1.3.0.
const ocsfVersion = "1.3.0"

// Classes of events, https://schema.ocsf.io/1.3.0/classes. The category is the number's thousands.
const (
	fileActivity     = 1001
	processActivity  = 1007
	detectionFinding = 2004
	userAccess       = 3005 // User Access Management
	networkActivity  = 4001
	httpActivity     = 4002
	lifecycle        = 6002 // Application Lifecycle
)

// activity is the class of an event, and the activity in that class, by its number and name.
type activity struct {
	class, id int
	name      string
}

// activities has the activities of operations; see activityOf for other operations. The number 99
// stands for an activity that the schema does not define for the class. The name of such an activity
// is the operation's name.
var activities = map[string]activity{
	"create": {fileActivity, 1, "Create"}, "mkdir": {fileActivity, 1, "Create"}, "mknod": {fileActivity, 1, "Create"},
	"symlink": {fileActivity, 1, "Create"}, "link": {fileActivity, 1, "Create"}, "tmpfile": {fileActivity, 1, "Create"},
	"read": {fileActivity, 2, "Read"}, "readdir": {fileActivity, 2, "Read"}, "readlink": {fileActivity, 2, "Read"},
	"write": {fileActivity, 3, "Update"}, "truncate": {fileActivity, 3, "Update"}, "allocate": {fileActivity, 3, "Update"},
	"replace": {fileActivity, 3, "Update"}, "copy_file_range": {fileActivity, 3, "Update"},
	"unlink": {fileActivity, 4, "Delete"}, "rmdir": {fileActivity, 4, "Delete"},
	"rename":  {fileActivity, 5, "Rename"},
	"setattr": {fileActivity, 6, "Set Attributes"}, "setxattr": {fileActivity, 6, "Set Attributes"}, "removexattr": {fileActivity, 6, "Set Attributes"},
	"getattr": {fileActivity, 8, "Get Attributes"}, "lookup": {fileActivity, 8, "Get Attributes"}, "getxattr": {fileActivity, 8, "Get Attributes"},
	"listxattr": {fileActivity, 8, "Get Attributes"}, "statfs": {fileActivity, 8, "Get Attributes"},
	"mount": {fileActivity, 12, "Mount"}, "unmount": {fileActivity, 13, "Unmount"},
	"open": {fileActivity, 14, "Open"}, "opendir": {fileActivity, 14, "Open"},
	"run":   {processActivity, 1, "Launch"},
	"grant": {userAccess, 1, "Assign Privileges"}, "revoke": {userAccess, 2, "Revoke Privileges"}, "expire": {userAccess, 2, "Revoke Privileges"},
	"suspend": {userAccess, 2, "Revoke Privileges"}, "pause": {userAccess, 2, "Revoke Privileges"}, "resume": {userAccess, 1, "Assign Privileges"},
	"connect": {networkActivity, 1, "Open"}, "disconnect": {networkActivity, 2, "Close"},
	"request": {httpActivity, 99, ""},
	"session": {lifecycle, 3, "Start"},
	"set":     {userAccess, 99, ""}, "abuse": {userAccess, 99, ""}, "reload": {lifecycle, 99, ""}, "panic": {lifecycle, 99, ""},
	"lost": {lifecycle, 99, ""}, "summed": {lifecycle, 99, ""}, "unavailable": {lifecycle, 99, ""},
}

// activityOf returns the activity of an operation. Every operation that is not in activities is one
// on files.
func activityOf(op string) activity {
	a, ok := activities[op]
	if !ok {
		a = activity{fileActivity, 99, ""}
	}
	if a.name == "" {
		a.name = op
	}
	return a
}

// event is an event of OCSF. Its unmapped fields are those of the record as it was written, so
// nothing is lost in the translation.
type event struct {
	Category     int             `json:"category_uid"`
	Class        int             `json:"class_uid"`
	Activity     int             `json:"activity_id"`
	ActivityName string          `json:"activity_name"`
	Type         int             `json:"type_uid"`
	Time         int64           `json:"time"` // milliseconds
	Severity     int             `json:"severity_id"`
	Status       int             `json:"status_id,omitempty"`
	StatusCode   string          `json:"status_code,omitempty"`
	Detail       names.Foreign   `json:"status_detail,omitempty"`
	Action       int             `json:"action_id,omitempty"`
	Disposition  int             `json:"disposition_id,omitempty"`
	Count        int64           `json:"count,omitempty"`
	Duration     int64           `json:"duration,omitempty"` // milliseconds
	Metadata     metadata        `json:"metadata"`
	Device       *device         `json:"device,omitempty"`
	Actor        *actor          `json:"actor,omitempty"`
	File         *file           `json:"file,omitempty"`
	FileResult   *file           `json:"file_result,omitempty"`
	Destination  *endpoint       `json:"dst_endpoint,omitempty"`
	Traffic      *traffic        `json:"traffic,omitempty"`
	Privileges   []names.Foreign `json:"privileges,omitempty"`
	Resource     *resource       `json:"resource,omitempty"`
	Finding      *finding        `json:"finding_info,omitempty"`
	Unmapped     json.RawMessage `json:"unmapped,omitempty"`
}

type (
	metadata struct {
		Version  string  `json:"version"`
		Product  product `json:"product"`
		UID      string  `json:"uid"` // SESSION/NUMBER
		Sequence uint64  `json:"sequence"`
		Log      string  `json:"log_name"` // session
		// Profiles: security_control has action_id and disposition_id.
		Profiles []string `json:"profiles"`
	}
	product struct {
		Name   string `json:"name"`
		Vendor string `json:"vendor_name"`
	}
	device struct {
		Hostname string `json:"hostname"`
		Type     int    `json:"type_id"`
	}
	actor struct {
		App     string   `json:"app_name,omitempty"` // server
		Process *process `json:"process,omitempty"`
		User    *user    `json:"user,omitempty"`
	}
	process struct {
		PID int32 `json:"pid"`
	}
	user struct {
		UID string `json:"uid"`
	}
	file struct {
		Name string `json:"name"`
		Path string `json:"path"`
		Type int    `json:"type_id"`
	}
	endpoint struct {
		Hostname string `json:"hostname"`
		Port     int    `json:"port,omitempty"`
	}
	traffic struct {
		In  int64 `json:"bytes_in"`
		Out int64 `json:"bytes_out"`
	}
	resource struct {
		Name string `json:"name"`
		Type string `json:"type"`
	}
	finding struct {
		Title string `json:"title"`
		UID   string `json:"uid"`
		Desc  string `json:"desc"`
	}
)

// Numbers that classes share.
const (
	informational, low, high = 1, 2, 4 // severity_id
	success, failure         = 1, 2    // status_id
	allowed, denied          = 1, 2    // action_id, and disposition_id: Allowed, Blocked
	otherType                = 99
	unknownType              = 0
)

// ocsfLine returns an item as an event of OCSF, a line of JSON without its newline. Control characters
// and invisible characters are escaped.
func ocsfLine(i *Item) ([]byte, error) {
	line, err := json.Marshal(eventOf(i))
	return names.JSON(line), err
}

func eventOf(i *Item) *event {
	if i.Hole != nil {
		return holeEvent(i)
	}
	r := &i.Entry
	a := activityOf(r.Op.Raw())
	e := newEvent(i, a)
	e.Time, e.Duration = r.Time.UnixMilli(), r.DurationUS/1000
	e.Severity, e.Status, e.Action, e.Disposition = informational, success, allowed, allowed
	switch r.Verdict.Raw() {
	case "refused":
		e.Severity, e.Status, e.Action, e.Disposition = low, failure, denied, denied
	case "failed":
		e.Status, e.Action, e.Disposition = failure, 0, 0
	case "":
		e.Action, e.Disposition = 0, 0
	}
	e.StatusCode, e.Detail = r.Errno.Raw(), r.Detail
	if n := r.Times(); n > 1 {
		e.Count = n
	}
	e.Actor = actorOf(r)
	e.addObject(r)
	e.Unmapped = json.RawMessage(r.Line)
	return e
}

// addObject adds the object of the operation: a file, a host or a root.
func (e *event) addObject(r *audit.Entry) {
	switch {
	case e.Class == fileActivity:
		e.File, e.FileResult = fileOf(r.Name()), fileOf(r.Name2())
		if e.File == nil { // the schema requires a file
			e.File = &file{Name: r.Point.Raw(), Path: r.Point.Raw(), Type: unknownType}
		}
	case e.Class == networkActivity || e.Class == httpActivity:
		e.Destination = &endpoint{Hostname: r.Host.Raw(), Port: r.Port}
	case e.Class == userAccess:
		e.Privileges = []names.Foreign{r.Rights}
		e.Resource = &resource{Name: r.Root.Raw(), Type: "root"}
		if r.Host != "" {
			e.Resource = &resource{Name: r.Host.Raw(), Type: "host"}
		}
	}
	if r.Read > 0 || r.Written > 0 {
		e.Traffic = &traffic{In: r.Read, Out: r.Written}
	}
}

// newEvent returns an event with the fields that the events of all items have.
func newEvent(i *Item, a activity) *event {
	session, seq := i.Entry.Session.Raw(), i.Entry.Seq
	e := &event{
		Category: a.class / 1000, Class: a.class, Activity: a.id, ActivityName: a.name, Type: a.class*100 + a.id,
		Metadata: metadata{
			Version: ocsfVersion, Product: product{"rootsfs", "rootsfs"}, UID: fmt.Sprintf("%s/%d", session, seq), Sequence: seq, Log: session,
			Profiles: []string{"security_control", "host"},
		},
	}
	if i.Machine != "" {
		e.Device = &device{Hostname: i.Machine, Type: unknownType}
	}
	return e
}

func actorOf(r *audit.Entry) *actor {
	a := &actor{App: r.Subject.Raw()}
	if r.PID > 0 {
		a.Process = &process{r.PID}
	}
	if r.UID != nil {
		a.User = &user{fmt.Sprint(*r.UID)}
	}
	return a
}

// fileOf returns the file that a record names, or nil if the name is empty.
func fileOf(name names.Foreign) *file {
	path := name.Raw()
	if path == "" {
		return nil
	}
	base := path
	for i := len(path) - 1; i >= 0; i-- {
		if path[i] == '/' {
			base = path[i+1:]
			break
		}
	}
	return &file{Name: base, Path: path, Type: unknownType}
}

// holeEvent returns the event for a hole: a finding that records are missing or were changed.
func holeEvent(i *Item) *event {
	h := i.Hole
	e := newEvent(i, activity{detectionFinding, 1, "Create"})
	e.Time, e.Severity, e.Status = i.Entry.Time.UnixMilli(), informational, success
	e.Metadata.UID += "/hole"
	what := fmt.Sprintf("records %d to %d of session %s", h.From, h.To, names.Escape(i.Entry.Session.Raw()))
	f := &finding{UID: e.Metadata.UID, Title: "Audit records removed", Desc: what + " were removed by the log, because its files were full or old"}
	if h.Tampering {
		e.Severity = high
		f.Title, f.Desc = "Audit records missing", what+" are missing, and nothing shows that the log removed them"
	}
	if h.Changed {
		f.Title, f.Desc = "Audit record changed", what+" are not as the log wrote them"
	}
	e.Finding = f
	return e
}

// Lines is a Sink that appends OCSF events to a file, a line each.
type Lines struct{ f *os.File }

// NewLines opens a file for appending; "-" is standard output. It refuses a link, and creates a
// missing file with mode 0600.
func NewLines(path string) (*Lines, error) {
	if path == "-" {
		return &Lines{os.Stdout}, nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	return &Lines{f}, err
}

// Send implements Sink. If the file is regular, the items are on disk when Send returns nil.
func (l *Lines) Send(_ context.Context, items []Item) error {
	w := bufio.NewWriter(l.f)
	for i := range items {
		line, err := ocsfLine(&items[i])
		if err != nil {
			return err
		}
		_, _ = w.Write(append(line, '\n')) // Flush returns the error
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if info, err := l.f.Stat(); err != nil || !info.Mode().IsRegular() {
		return err
	}
	return l.f.Sync()
}

// Close implements Sink.
func (l *Lines) Close() error {
	if l.f == os.Stdout {
		return nil
	}
	return l.f.Close()
}
