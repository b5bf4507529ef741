package cli

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/broker/proxy"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/network"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/session"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// runFlags are the flags of `rootsfs run`.
type runFlags struct {
	sessionFlags
	env        []string
	home       string
	Net        netValue
	netAnySNI  bool
	netLimits  netLimits
	netAsk     bool
	listen     []int
	secrets    []string
	presetNets []network.Rule // hosts of the preset
	sockets    []string
	mcp        string
	paths      string
	level      string
	unconfined bool
	onRevoke   string
	pids       int
	memory     string
	learn      bool
	dir        string
	links      string
	homeMax    string
	Agent      string   // of --for, "" for none
	homeParts  []string // see agents.Agent.Home
}

const runLong = `Run COMMAND, an MCP server or any program, so that it reaches the approved roots and
nothing else of yours: no other files, no processes, no sockets, and no network but the
hosts of --net=HOSTS. Roots appear at the paths that they have outside. What the
command holds of a root is dead when "rootsfs revoke" returns.

HOME and /tmp are private and gone afterwards, unless --home keeps HOME. The command
works in the first root, or in --dir; relative paths behind -- are from there. A
server that speaks MCP is told of its roots and can ask for more (see: rootsfs help
consent). If the machine cannot confine the command as asked, it is not started.
The exit code is the command's own. --for AGENT gives a coding agent the repository
around the working directory, a HOME that is kept for it there, its keys and its hosts.`

const runExamples = `  rootsfs run --root ~/code:ro -- mcp-server-filesystem ~/code
  rootsfs run --root ~/code:ro --net --home ~/.cache/rootsfs/files -- npx -y @modelcontextprotocol/server-filesystem ~/code
  rootsfs run --root .:rw --net=api.github.com,*.npmjs.org --env GITHUB_TOKEN -- my-agent
  rootsfs run --root .:rw --net=api.github.com --net-ask -- my-agent      # answer: rootsfs consent
  rootsfs run --root .:rw --secret GITHUB_TOKEN=https://api.github.com -- my-agent      # the token stays outside
  rootsfs run --for codex      # an agent, in a project (see: rootsfs help agents)
  rootsfs run --root .:rw -- bash
  rootsfs run --root .:rw --socket "$SSH_AUTH_SOCK" -- ssh-add -l
  rootsfs run --root .:ro --once ~/letter.txt -- ./server      # read it once
  rootsfs run --learn --root .:ro -- ./server      # what else would it need?`

func (a *app) newRunCmd() *cobra.Command {
	f := &runFlags{}
	cmd := &cobra.Command{
		Use:     "run [flags] -- COMMAND [ARG]...",
		Short:   "Run a program that reaches only approved directories",
		Long:    runLong,
		Example: runExamples,
		Args: func(cmd *cobra.Command, args []string) error {
			if f.Agent != "" && len(args) == 0 {
				return nil
			}
			return runArgs(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error { return a.runCommand(cmd, f, f.agentCommand(args)) },
	}
	fs := cmd.Flags()
	fs.SetInterspersed(false) // flags behind the command are the command's own
	f.addMount(cmd)
	f.addStart(cmd, "of the command")
	fs.StringArrayVar(&f.env, "env", nil, "pass the variable `NAME`, or set NAME=VALUE; repeatable")
	pathVar(fs, &f.home, "home", "keep HOME in this `directory` between runs (default: private, and gone afterwards)")
	netFlag(fs, &f.Net, "let the command connect to these `HOSTS` (name, *.domain, address, each with :port or without; repeatable), or without a value to the whole network")
	fs.BoolVar(&f.netAnySNI, "net-any-sni", false, "with --net=HOSTS, let TLS ask a host for any server name")
	f.netLimits.addNamed(cmd, "net-limit", "with --net=HOSTS, limit the connections together: `NAME=VALUE`, such as bytes_per_second=10M, bytes=1G or connections=100; repeatable", config.NetLimits())
	fs.BoolVar(&f.netAsk, "net-ask", false, "ask you about each other host that the command connects to, while it waits (see: rootsfs help network)")
	fs.StringArrayVar(&f.secrets, "secret", nil, "let the command use the credential `NAME`[=https://HOST[:PORT][/PREFIX]], which stays outside: a variable, or git, gh, npm or aws (see: rootsfs help secrets); repeatable")
	fs.IntSliceVar(&f.listen, "listen", nil, "with --net, let the command listen on this TCP and UDP `port`; repeatable")
	fs.StringArrayVar(&f.sockets, "socket", nil, "let the command connect to this Unix `socket` of the host, [NAME=]PATH; repeatable")
	fs.StringVar(&f.mcp, "mcp", "auto", "whether the command speaks MCP: auto, on or off")
	fs.StringVar(&f.paths, "map", "same", "where roots appear inside: same (their own paths) or flat (/roots/NAME)")
	fs.StringVar(&f.links, "links", "visible", "links that leave a root: visible (those to what the command sees anyway work) or strict (none works)")
	fs.StringVar(&f.level, "level", "", "demand this confinement `level`: namespaces, bubblewrap or landlock (default: the strongest that the machine offers)")
	fs.BoolVar(&f.unconfined, "unconfined", false, "do not confine the command: it reaches everything that you do")
	fs.StringVar(&f.onRevoke, "on-revoke", "announce", "when the last root is gone: announce (tell the server) or stop (end the command)")
	fs.IntVar(&f.pids, "pids-max", sandbox.DefaultPids, "most processes and threads of the command")
	fs.StringVar(&f.memory, "memory-max", "", "most memory of the command and all that it starts: a `size` such as 2G, or none (default: three quarters of the memory)")
	fs.StringVar(&f.homeMax, "home-max", "", "most that the private HOME and /tmp hold in memory: a `size` such as 4G (default: a quarter of the memory, at most 2G)")
	fs.BoolVar(&f.learn, "learn", false, "note what is refused, and propose the missing roots and rights at the end")
	pathVar(fs, &f.dir, "dir", "working `directory` inside (default: the first root)")
	f.verbosity(fs, "every request of the kernel")
	f.Add(cmd)
	fs.Lookup("name").Usage = "`name` of the session, with a number if a live one has it; [[net]] and [[secret]] blocks go by it (default: of the command)"
	forFlag := fs.Lookup("for")
	forFlag.Value, forFlag.DefValue = forValue{f}, ""
	forFlag.Usage = "take the preset of this `agent` (its roots, HOME, variables and network; rootsfs help agents lists them), or revoke the roots after a duration, such as 30m; may be given once for each"
	agentCompletion(cmd)
	fixedWords(cmd, "mcp", "auto", "on", "off")
	fixedWords(cmd, "map", "same", "flat")
	fixedWords(cmd, "links", "visible", "strict")
	fixedWords(cmd, "level", "namespaces", "bubblewrap", "landlock")
	fixedWords(cmd, "on-revoke", "announce", "stop")
	allFlag(cmd)
	return cmd
}

// runPlan is the plan of a run, made from the flags of `rootsfs run` and the configuration.
type runPlan struct {
	session session.Options
	box     sandbox.Options
	mcp     proxy.Mode
	// pinFile is the file that demands the level box.Least, "" if no file does.
	pinFile string
	reached atomic.Uint32 // the sandbox.Level that confines the command; 0: not known yet
	sockets []grantedSocket
	net     network.Options            // the approved hosts, and whether the owner is asked about others
	netEnds map[network.Rule]time.Time // when rules of the configuration are revoked
	secrets []*commandSecret
	// certificates waits until this process has read the system's certificates, with which it
	// verifies the secrets' hosts; nil: no secret.
	certificates func()
	network      *commandNet
	passed       []string // the values of --env, without the preset's
	env          []string // the command's variables in the form of --env: from --env, the preset and rootsfs
	agent        string   // the agent whose preset was taken; "": none
	home         string   // the HOME to keep, as written; "": a private one
	newHome      string   // the note to print if home does not exist yet; "": none
	// homeParts are the files to copy into a kept HOME, see agents.Agent.Home.
	homeParts []string
	learn     bool
	// strictLinks means that no link that leaves its root works.
	strictLinks bool
	// stopsWithRoots means that the command is ended when the last root is gone.
	stopsWithRoots bool
	memoryGiven    bool // --memory-max is given
	// blockName is the name that the owner gave the run, or "": see givenName. Of the
	// configuration's blocks for a name, only those for blockName apply to the run.
	// otherBlockName is the command's name if the configuration has blocks for that name, which
	// do not apply because the owner did not give the name.
	blockName, otherBlockName string
	// implicit are the paths of the roots that no flag names: the command needs them to run.
	implicit []string
	resolved map[string]string // where directories lead, by their paths as written; see resolve
	notes    []string          // messages to the owner when the command starts
}

// runCommand runs `rootsfs run`.
func (a *app) runCommand(cmd *cobra.Command, f *runFlags, args []string) error {
	p, err := f.plan(cmd, args)
	if err != nil {
		return err
	}
	signals := catchSignals()
	r := &runner{
		a: a, plan: p, bindSignal: revokeOnSignal(), laterRoots: newLaterRoots(), umask: sandbox.Umask(), initialRoots: map[string]boundRoot{},
		stop: make(chan struct{}), drained: make(chan struct{}), sessionErr: make(chan error, 1),
		termRequested: make(chan struct{}), killRequested: make(chan struct{}),
	}
	r.finish = sync.OnceFunc(func() { close(r.stop) })
	r.drain = sync.OnceFunc(func() { close(r.drained) })
	exit, err := r.run(cmd.Context(), signals)
	if r.isStaged {
		a.warnStaged(cmd.Context(), r.s.Name())
	}
	if err != nil {
		return err
	}
	code := exit.Status()
	switch {
	case !errors.Is(exit.Lost, unix.EPIPE):
		a.noteOutput(exit.Lost)
	case code == ExitOK: // standard output has no reader: without rootsfs, the command would have got SIGPIPE
		code = 128 + int(unix.SIGPIPE)
	}
	if code != ExitOK {
		return &exitError{Code: code}
	}
	return nil
}

// plan makes the plan of a run from the flags and the configuration. It checks the flags before
// anything is created.
func (f *runFlags) plan(cmd *cobra.Command, args []string) (*runPlan, error) {
	f.Locks, f.Posix = "local", "safe"
	p := &runPlan{passed: slices.Clone(f.env), learn: f.learn, stopsWithRoots: f.onRevoke == "stop", memoryGiven: f.memory != ""}
	err := f.preset(cmd)
	if err != nil {
		return nil, err
	}
	if p.session, err = f.Options(cmd, ""); err != nil {
		return nil, err
	}
	if len(p.session.Roots) == 0 && f.askRepository() {
		if p.session, err = f.Options(cmd, ""); err != nil {
			return nil, err
		}
	}
	if err := f.agentHome(cmd, p); err != nil {
		return nil, err
	}
	f.setFromConfig(cmd, p.session.Config)
	p.env, p.agent, p.home, p.homeParts, p.strictLinks = f.env, f.Agent, f.home, f.homeParts, f.links == "strict"
	p.session.NameSource, p.session.StopReason = commandName(args), "the command has ended"
	p.session.NumberName = true
	switch f.mcp {
	case "auto":
		p.mcp = proxy.Auto
	case "on":
		p.mcp = proxy.On
	case "off":
		p.mcp = proxy.Off
	default:
		return nil, usage(fmt.Errorf("--mcp %s: write auto, on or off", names.Quote(f.mcp)))
	}
	if f.onRevoke != "stop" && f.onRevoke != "announce" {
		return nil, usage(fmt.Errorf("--on-revoke %s: write announce or stop", names.Quote(f.onRevoke)))
	}
	if err := f.confinement(p, args); err != nil {
		return nil, err
	}
	if err := f.grantSockets(p); err != nil {
		return nil, err
	}
	if err := f.readSecrets(cmd.Context(), p); err != nil {
		return nil, err
	}
	if p.network, err = newCommandNet(p); err != nil {
		return nil, err
	}
	if p.network != nil {
		p.session.Network = p.network
	}
	p.session.Within = p.within
	return p, p.planRoots()
}

// memoryMax returns the limit of memory, in bytes; 0: none. An unconfined command has one only
// if a flag sets it.
func (f *runFlags) memoryMax() (int64, error) {
	switch {
	case f.memory == "none", f.memory == "" && (f.unconfined || f.level == sandbox.None.String()):
		return 0, nil
	case f.memory == "":
		return sandbox.DefaultMemory(), nil
	}
	n, err := config.ParseSize(f.memory)
	switch {
	case err != nil:
		return 0, usage(fmt.Errorf("--memory-max: %w", err)) // err has the value
	case n == 0:
		err = errors.New("write a size above 0 such as 2G, or none")
	case n < sandbox.MinMemory:
		err = fmt.Errorf("choose at least %dM", sandbox.MinMemory>>20)
	}
	if err != nil {
		return 0, usage(fmt.Errorf("--memory-max %s: %w", names.Quote(f.memory), err))
	}
	return n, nil
}

// confinement turns the flags about confinement into the sandbox's options.
func (f *runFlags) confinement(p *runPlan, args []string) error {
	if f.pids < sandbox.MinPids || f.pids > sandbox.MaxPids {
		return usage(fmt.Errorf("--pids-max %d: choose %d to %d", f.pids, sandbox.MinPids, sandbox.MaxPids))
	}
	memory, err := f.memoryMax()
	if err != nil {
		return err
	}
	homeMax, err := parseSize(f.homeMax)
	if err == nil && homeMax != 0 && homeMax < sandbox.MinTmpSize {
		err = fmt.Errorf("choose at least %dM", sandbox.MinTmpSize>>20)
	}
	if err != nil {
		return usage(fmt.Errorf("--home-max %s: %w", names.Quote(f.homeMax), err))
	}
	if f.dir != "" && (!filepath.IsAbs(f.dir) || filepath.Clean(f.dir) != f.dir) {
		return usage(fmt.Errorf("--dir %s: write an absolute path without . and .., as it is inside", names.Quote(f.dir)))
	}
	p.box = sandbox.Options{Args: args, Net: f.Net.All, PidsMax: f.pids, MemoryMax: memory, Dir: f.dir, TmpSize: homeMax}
	if p.box.Listen, err = f.ports(); err != nil {
		return err
	}
	p.box.CheckProgram = p.judge().CheckProgram
	p.resolveName()
	if err := f.planNetwork(p); err != nil {
		return err
	}
	f.passProxies(p)
	switch f.paths {
	case "same":
	case "flat":
		p.box.Map = sandbox.Flat
		p.session.FlatAt = sandbox.DefaultFlatAt
	default:
		return usage(fmt.Errorf("--map %s: write same or flat", names.Quote(f.paths)))
	}
	if f.links != "strict" && f.links != "visible" {
		return usage(fmt.Errorf("--links %s: write visible or strict", names.Quote(f.links)))
	}
	if f.level != "" {
		level, err := sandbox.ParseLevel(f.level)
		if err != nil {
			return usage(fmt.Errorf("--level: %w", err))
		}
		if p.box.Level = level; level == sandbox.None && !f.unconfined {
			return usage(errors.New("--level none confines nothing: write --unconfined if that is meant"))
		}
	} else if f.unconfined {
		p.box.Level = sandbox.None
	}
	if err := f.pinLevel(p); err != nil {
		return err
	}
	if err := p.checkWholeNet(p.session.Ceiling); err != nil {
		return session.CeilingError(err)
	}
	if len(p.secrets) > 0 && (p.box.Level == sandbox.None || p.box.Level == sandbox.Landlock) {
		return usage(fmt.Errorf("--secret needs level namespaces or bubblewrap: at level %s nothing keeps the command from the credential", p.box.Level))
	}
	if f.home != "" {
		home, err := filepath.Abs(f.home)
		if err != nil {
			return usage(fmt.Errorf("--home: %w", err))
		}
		p.box.Home = home
		// Through a root that contains the kept home, the command could replace the home by a
		// link. The next run's HOME, which is writable, could then be any directory of the
		// owner.
		p.session.Keep = append(p.session.Keep, rules.ReservedPath{Path: home, What: "the kept home of the command"})
	}
	return nil
}

// setFromConfig takes the values of --links and --listen from the configuration if the command line
// does not have them. It does so for --listen only if the command has the whole network.
func (f *runFlags) setFromConfig(cmd *cobra.Command, conf *config.Config) {
	if conf.Run.Links != "" && !cmd.Flags().Changed("links") {
		f.links = conf.Run.Links
	}
	if f.Net.All && !cmd.Flags().Changed("listen") {
		f.listen = conf.Run.Listen
	}
}

// ports returns the ports of --listen.
func (f *runFlags) ports() ([]uint16, error) {
	var ports []uint16
	for _, port := range f.listen {
		if port < 1 || port > 65535 {
			return nil, usage(fmt.Errorf("--listen %d: choose a port from 1 to 65535", port))
		}
		ports = append(ports, uint16(port))
	}
	if len(ports) > 0 && !f.Net.All {
		return nil, usage(errors.New("--listen needs --net: without it nobody else reaches the command"))
	}
	return ports, nil
}

// pinLevel sets the weakest level that the configuration and the ceiling allow, and refuses a flag
// that asks for a weaker one. The strongest level has the lowest number.
func (f *runFlags) pinLevel(p *runPlan) error {
	conf := p.session.Config
	ceiling, where := p.session.Ceiling.Level()
	for _, demand := range []struct{ level, file string }{{conf.Run.Level, conf.Path}, {ceiling, where}} {
		if demand.level == "" {
			continue
		}
		level, err := sandbox.ParseLevel(demand.level)
		if err != nil {
			return err
		}
		if p.box.Level > level {
			asked := p.box.Level.String()
			if p.box.Level == sandbox.None {
				asked = "--unconfined"
			}
			return &control.Error{Class: control.NotApproved, Text: fmt.Sprintf("%s is weaker than the confinement that %s demands (run.level = %q); leave the flag out, or change the file",
				asked, names.Quote(demand.file), demand.level)}
		}
		if p.box.Level == 0 && (p.box.Least == 0 || p.box.Least > level) {
			p.box.Least, p.pinFile = level, demand.file
		}
	}
	return nil
}

// checkWholeNet returns an error if the run has the whole network and the ceiling does not allow
// that.
func (p *runPlan) checkWholeNet(c *config.Ceiling) error {
	err := c.CheckWholeNet()
	switch {
	case err == nil:
		return nil
	case p.box.Level == sandbox.None:
		return fmt.Errorf("a command that is not confined has the whole network, and %w", err)
	case p.box.Net:
		return err
	}
	return nil
}

// within returns an error if the confinement of the run is weaker than a ceiling demands, or if the
// run has the whole network and the ceiling does not allow that.
func (p *runPlan) within(c *config.Ceiling) error {
	if err := p.checkWholeNet(c); err != nil {
		return err
	}
	word, where := c.Level()
	if word == "" {
		return nil
	}
	least, err := sandbox.ParseLevel(word)
	if level := sandbox.Level(p.reached.Load()); err == nil && level > least {
		err = fmt.Errorf("level %s is weaker than the confinement that the ceiling of this machine demands (%s, run.level = %q)", level, where, word)
	}
	return err
}

// runArgs checks the words of `rootsfs run`. Without -- the command begins at the first word that
// is no flag. A misplaced flag of rootsfs would then silently go to the command, and a server
// would start without its root. So runArgs refuses a line that looks like this mistake, unless --
// comes before the command.
func runArgs(c *cobra.Command, args []string) error {
	if err := argCount(1, -1, "the command")(c, args); err != nil || c.ArgsLenAtDash() >= 0 {
		return err
	}
	in, err := os.Stat(args[0])
	isDir := err == nil && in.IsDir()
	if slices.Contains(args, "--") { // the command's own, or one in the wrong place
		if net, ok := c.Flags().Lookup("net").Value.(*netValue); ok && net.All && !isDir {
			if _, err := network.ParseRules(args[0]); err == nil && strings.ContainsAny(args[0], ".:") {
				return usage(fmt.Errorf("%s is not a command. To approve hosts, write them behind an equals sign: --net=%s", names.Quote(args[0]), names.ShellWord(args[0])))
			}
		}
		if _, err := exec.LookPath(args[0]); isDir || err != nil && !strings.Contains(args[0], "/") {
			return usage(fmt.Errorf("%s is not a command. To approve a root, write --root %s", names.Quote(args[0]), names.ShellWord(args[0])))
		}
		return nil
	}
	if c.Flags().Changed("root") {
		return nil
	}
	if isDir {
		return usage(fmt.Errorf("%s is a directory, not a command. To approve it as a root, write --root %s, then -- and the command", names.Quote(args[0]), names.ShellWord(args[0])))
	}
	for _, arg := range args[1:] {
		if arg == "--root" || strings.HasPrefix(arg, "--root=") {
			return usage(fmt.Errorf("--root is written behind the command. Write rootsfs run --root PATH -- %s; if --root is the command's own, write -- before the command", names.ShellWord(args[0])))
		}
	}
	return nil
}

// warnUnsetEnv warns of variables of --env that are not set here: without them the command may
// fail, and not say why.
func (a *app) warnUnsetEnv(list []string) {
	for _, name := range list {
		if _, set := os.LookupEnv(name); !set && !strings.ContainsAny(name, "=*") {
			a.warn("--env %s: not set here, so the command does not get it", names.Escape(name))
		}
	}
}
