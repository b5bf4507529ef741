package secret

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
)

// hostOfGH is an entry of gh's hosts.yml.
type hostOfGH struct {
	Token string            `yaml:"oauth_token"`
	User  string            `yaml:"user,omitempty"`
	Git   string            `yaml:"git_protocol"`
	Users map[string]ghUser `yaml:"users,omitempty"`
}

// ghUser is an entry of users in an entry of hosts.yml.
type ghUser struct {
	Token string `yaml:"oauth_token"`
}

// ghHost returns the name under which gh knows the host of a URL of its API.
func ghHost(u URL) string {
	if u.Host == "api.github.com" {
		return "github.com"
	}
	return u.Authority()
}

// plainUser matches the user names that may be copied from the owner's hosts.yml into the program's
// file.
var plainUser = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,38}$`) })

// findHosts finds a token in gh's hosts.yml. The file has no token if gh keeps the token in the
// keyring.
func findHosts(text string, u URL, _ *owner) (found, bool) {
	var hosts map[string]hostOfGH
	if err := yaml.Unmarshal([]byte(text), &hosts); err != nil {
		return found{}, false
	}
	one := hosts[ghHost(u)]
	if one.Token == "" {
		one.Token = one.Users[one.User].Token
	}
	f := found{value: one.Token}
	if plainUser().MatchString(one.User) && one.User != one.Token {
		f.settings.user = one.User
	}
	return f, one.Token != ""
}

// showHosts returns the hosts.yml of gh for the program, with placeholders. It also returns a config.yml
// with the version that needs no migration: in a migration gh would ask the host for the user.
func showHosts(list []shownSecret) []HomeFile {
	hosts := map[string]hostOfGH{}
	for _, s := range list {
		user := s.found.settings.user
		if user == "" {
			user = s.login()
		}
		hosts[ghHost(s.URL)] = hostOfGH{
			Token: s.placeholder, User: user, Git: "https", Users: map[string]ghUser{user: {s.placeholder}},
		}
	}
	text, err := yaml.Marshal(hosts)
	if err != nil {
		panic(err) // every value of these types can be encoded
	}
	return []HomeFile{
		{".config/gh/hosts.yml", append([]byte(madeBy), text...)},
		{".config/gh/config.yml", []byte(madeBy + "version: \"1\"\ngit_protocol: https\n")},
	}
}

// dockerConfig is Docker's config.json.
type dockerConfig struct {
	Note  string                `json:"rootsfs,omitempty"`
	Auths map[string]dockerAuth `json:"auths"`
}

type dockerAuth struct {
	Auth string `json:"auth"`
}

// dockerHub is the key of Docker Hub in config.json.
const dockerHub = "https://index.docker.io/v1/"

// dockerHost returns the host of a key of config.json.
func dockerHost(key string) string {
	host, _, _ := strings.Cut(strings.TrimPrefix(key, "https://"), "/")
	return host
}

// dockerKey returns the key of config.json for a registry.
func dockerKey(u URL) string {
	if strings.HasSuffix("."+u.Host, ".docker.io") {
		return dockerHub
	}
	return u.Authority()
}

// findDocker finds a login in Docker's config.json. The file has no login if a credential helper of
// Docker's has it.
func findDocker(text string, u URL, _ *owner) (found, bool) {
	var conf dockerConfig
	if err := json.Unmarshal([]byte(text), &conf); err != nil {
		return found{}, false
	}
	for _, key := range slices.Sorted(maps.Keys(conf.Auths)) {
		one := conf.Auths[key]
		if dockerHost(key) != dockerHost(dockerKey(u)) {
			continue
		}
		decoded, err := base64.StdEncoding.DecodeString(one.Auth)
		user, password, ok := strings.Cut(strings.TrimRight(string(decoded), "\x00"), ":")
		if err == nil && ok {
			return loginOf(user, password, ""), true
		}
	}
	return found{}, false
}

// showDocker returns the config.json of Docker for the program, with placeholders.
func showDocker(list []shownSecret) []HomeFile {
	conf := dockerConfig{Note: strings.Trim(madeBy, "# \n"), Auths: map[string]dockerAuth{}}
	for _, s := range list {
		login := fmt.Sprintf("%s:%s", s.login(), s.placeholder)
		conf.Auths[dockerKey(s.URL)] = dockerAuth{base64.StdEncoding.EncodeToString([]byte(login))}
	}
	text, err := json.MarshalIndent(conf, "", "\t")
	if err != nil {
		panic(err) // every value of these types can be encoded
	}
	return []HomeFile{{".docker/config.json", append(text, '\n')}}
}
