// Package childfs is for tests: it works on files in a child process, so that a test can
// use a mount which the test's own process serves.
//
// A process must not use a mount that it serves itself. Go's runtime keeps a processor
// while the kernel polls a file, while a page of a mapping is read and while a child
// starts in the mount. If the kernel waits for this process meanwhile, the process cannot
// answer, and only the end of the connection ends the wait.
//
// The functions have the names, the arguments and the errors of package os. Functions of
// golang.org/x/sys/unix have Sys before the name. Each test binary has one child process, in which
// the functions run. The child process is the test binary, started again. [In] turns a function of a
// test into one that runs in the child process. [Main] fails a test binary whose process has used
// its own mount.
package childfs

import (
	"bytes"
	"encoding/gob"
	"fmt"
	"net"
	"net/rpc"
	"os"
	"os/exec"
	"reflect"
	"sync"

	"golang.org/x/sys/unix"
)

// childEnv is set in the child's environment; its socket is descriptor 3.
const childEnv = "ROOTSFS_CHILDFS"

// functions are the functions for the child, by name: both processes register the same
// ones.
var functions = map[string]reflect.Value{}

// Request is a call of a function in the child.
type Request struct {
	Name string
	Args [][]byte // for a pointer its target; nil for a nil pointer
}

// Reply has the results of the function, and its arguments' targets if it changed them.
type Reply struct {
	Results, Args [][]byte // nil for an argument that the function did not change
	Err           *wireError
}

var errorType = reflect.TypeFor[error]()

// In returns a function that runs f in the child process, under a name that no other function in
// the test binary has. Call In to initialize a package variable, so that both processes know f.
// The arguments and results of f must be of types that encoding/gob takes; its last
// result must be an error. Values that f writes into slices and through pointers reach
// the caller.
func In[F any](name string, f F) F {
	v := reflect.ValueOf(f)
	typ := v.Type()
	if n := typ.NumOut(); n == 0 || typ.Out(n-1) != errorType {
		panic("childfs: the last result of " + name + " is no error")
	}
	if _, ok := functions[name]; ok {
		panic("childfs: two functions have the name " + name)
	}
	functions[name] = v
	return reflect.MakeFunc(typ, func(args []reflect.Value) []reflect.Value {
		return call(name, typ, args)
	}).Interface().(F)
}

// call runs a function in the child.
func call(name string, typ reflect.Type, args []reflect.Value) (results []reflect.Value) {
	var reply Reply
	if err := connect().Call("Server.Do", &Request{name, encode(args)}, &reply); err != nil {
		panic(fmt.Sprintf("childfs: %s in the child process: %v", name, err))
	}
	for i, arg := range args {
		if reply.Args[i] == nil {
			continue
		}
		now := decode(reply.Args[i], arg.Type())
		if arg.Kind() == reflect.Pointer {
			arg.Elem().Set(now.Elem())
		} else {
			reflect.Copy(arg, now)
		}
	}
	last := typ.NumOut() - 1
	for i := range last {
		results = append(results, decode(reply.Results[i], typ.Out(i)))
	}
	err := reflect.New(errorType).Elem()
	if reply.Err != nil {
		err.Set(reflect.ValueOf(reply.Err.err()))
	}
	return append(results, err)
}

// Server runs the functions, in the child.
type Server struct{}

// Do runs one function. net/rpc calls it on a goroutine of its own.
func (Server) Do(req *Request, reply *Reply) error {
	f, ok := functions[req.Name]
	if !ok {
		return fmt.Errorf("the child process has no function %s", req.Name)
	}
	typ := f.Type()
	var args []reflect.Value
	for i, b := range req.Args {
		args = append(args, decode(bytes.Clone(b), typ.In(i))) // b must stay unchanged, for the comparison below
	}
	var results []reflect.Value
	if typ.IsVariadic() {
		results = f.CallSlice(args)
	} else {
		results = f.Call(args)
	}
	last := len(results) - 1
	reply.Results = encode(results[:last])
	reply.Args = make([][]byte, len(args))
	for i, arg := range args {
		if k := arg.Kind(); (k == reflect.Slice || k == reflect.Pointer) && !arg.IsNil() {
			// An unchanged argument is not sent back: the caller may share its memory with other
			// goroutines.
			if now := encode(args[i : i+1])[0]; !bytes.Equal(now, req.Args[i]) {
				reply.Args[i] = now
			}
		}
	}
	if err, ok := results[last].Interface().(error); ok {
		reply.Err = newWireError(err)
	}
	return nil
}

func encode(values []reflect.Value) [][]byte {
	all := make([][]byte, len(values))
	for i, v := range values {
		if v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8 {
			if !v.IsNil() {
				all[i] = append([]byte{0}, v.Bytes()...) // gob takes longer
			}
			continue
		}
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				continue
			}
			v = v.Elem()
		}
		var b bytes.Buffer
		if err := gob.NewEncoder(&b).EncodeValue(v); err != nil {
			panic(fmt.Sprintf("childfs: %s cannot be sent: %v", v.Type(), err))
		}
		all[i] = b.Bytes()
	}
	return all
}

func decode(b []byte, typ reflect.Type) reflect.Value {
	v := reflect.New(typ).Elem()
	switch {
	case len(b) == 0:
		return v
	case typ.Kind() == reflect.Slice && typ.Elem().Kind() == reflect.Uint8:
		v.SetBytes(b[1:])
		return v
	}
	into := v
	if typ.Kind() == reflect.Pointer {
		v.Set(reflect.New(typ.Elem()))
		into = v.Elem()
	}
	if err := gob.NewDecoder(bytes.NewReader(b)).DecodeValue(into.Addr()); err != nil {
		panic(fmt.Sprintf("childfs: %s cannot be received: %v", typ, err))
	}
	return v
}

// child is the child process.
type child struct {
	*rpc.Client
	cmd *exec.Cmd
}

// connect returns the child process. The first call starts it.
var connect = sync.OnceValue(func() *child {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		panic(fmt.Sprintf("childfs: make a socket: %v", err))
	}
	theirs := os.NewFile(uintptr(ends[1]), "childfs")
	defer theirs.Close()
	cmd := exec.Command("/proc/self/exe", "-test.run=^$")
	cmd.Env = append(os.Environ(), childEnv+"=1")
	cmd.ExtraFiles, cmd.Stderr = []*os.File{theirs}, os.Stderr
	if err := cmd.Start(); err != nil {
		panic(fmt.Sprintf("childfs: start the child process: %v", err))
	}
	go cmd.Wait() //nolint:errcheck // calls fail when the child has gone
	return &child{rpc.NewClient(conn(ends[0])), cmd}
})

// Pid returns the child's process id.
func Pid() int { return connect().cmd.Process.Pid }

func conn(fd int) net.Conn {
	f := os.NewFile(uintptr(fd), "childfs")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		panic(fmt.Sprintf("childfs: use the socket: %v", err))
	}
	return c
}

// serveChild is everything that the child does. It ends when the test's process ends, because that
// closes the socket.
func serveChild() {
	_ = os.Unsetenv(childEnv)
	if err := rpc.Register(Server{}); err != nil {
		panic(err)
	}
	rpc.ServeConn(conn(3))
	os.Exit(0)
}
