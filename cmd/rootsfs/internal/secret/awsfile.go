package secret

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// signingKeys has the parts of a key of AWS besides the secret access key.
type signingKeys struct {
	id    string
	token string // "": the key is not of a session
}

// awsProfile returns the values that the text of a file of AWS has for the owner's profile, by
// their names in lower case.
func awsProfile(text string, o *owner) map[string]string {
	profile := cmp.Or(o.lookup("AWS_PROFILE"), "default")
	values, section := map[string]string{}, ""
	for line := range strings.Lines(text) {
		isNested := strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t")
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "["); ok {
			name, _, _ = strings.Cut(name, "]")
			section = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(name), "profile "))
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if ok && !isNested && section == profile && line[0] != '#' && line[0] != ';' {
			values[strings.ToLower(strings.TrimSpace(key))] = strings.TrimSpace(value)
		}
	}
	return values
}

// findAWS finds the keys of the owner's profile in ~/.aws/credentials.
func findAWS(text string, _ URL, o *owner) (found, bool) {
	v := awsProfile(text, o)
	if v["aws_access_key_id"] == "" || v["aws_secret_access_key"] == "" {
		return found{}, false
	}
	return awsKeys(v["aws_access_key_id"], v["aws_secret_access_key"], v["aws_session_token"], o), true
}

func awsKeys(id, key, token string, o *owner) found {
	return found{value: key, keys: &signingKeys{id, token}, settings: settings{region: o.awsRegion()}}
}

// findKeysInVariables finds keys in the owner's variables, and removes these variables from the
// environment of this process.
func findKeysInVariables(o *owner) (found, bool) {
	id, key, token := o.lookup("AWS_ACCESS_KEY_ID"), o.lookup("AWS_SECRET_ACCESS_KEY"), o.lookup("AWS_SESSION_TOKEN")
	if id == "" || key == "" {
		return found{}, false
	}
	for _, name := range presets["aws"].variables {
		_ = os.Unsetenv(name) // fails only for an invalid name
	}
	f := awsKeys(id, key, token, o)
	f.from = "the variable AWS_ACCESS_KEY_ID"
	return f, true
}

// parseKeys reads keys from a file like ~/.aws/credentials, or from what a credential_process
// prints.
func parseKeys(text string, o *owner) (found, error) {
	if !strings.HasPrefix(text, "{") {
		if f, ok := findAWS(text, URL{}, o); ok {
			return f, nil
		}
		return found{}, fmt.Errorf("no aws_access_key_id and aws_secret_access_key of the profile %s", cmp.Or(o.lookup("AWS_PROFILE"), "default"))
	}
	var p struct{ AccessKeyId, SecretAccessKey, SessionToken string } //nolint:revive // AWS's own names
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return found{}, errors.New("this is not what a credential_process of AWS prints")
	}
	return awsKeys(p.AccessKeyId, p.SecretAccessKey, p.SessionToken, o), nil
}

// awsConfig returns the values of the owner's profile in ~/.aws/config.
func (o *owner) awsConfig() (values map[string]string, err error) {
	_, err = o.findIn("~/.aws/config", func(text string, _ URL, o *owner) (found, bool) {
		values = awsProfile(text, o)
		return found{}, false
	}, URL{})
	if errors.Is(err, errNone) {
		err = nil
	}
	return values, err
}

var regionText = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9-]{1,40}$`) })

// awsRegion returns the owner's region, "" if none is known.
func (o *owner) awsRegion() string {
	region := cmp.Or(o.lookup("AWS_REGION"), o.lookup("AWS_DEFAULT_REGION"))
	if region == "" {
		if values, err := o.awsConfig(); err == nil {
			region = values["region"]
		}
	}
	if !regionText().MatchString(region) {
		return ""
	}
	return region
}

// awsURL returns the endpoint in ~/.aws/config, or else the endpoint of S3 in the owner's region.
// It returns an error if a variable names an endpoint that ~/.aws/config does not name.
func awsURL(o *owner) (string, error) {
	values, err := o.awsConfig()
	if err != nil {
		return "", err
	}
	endpoint := values["endpoint_url"]
	for _, name := range []string{"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"} { // a repository's settings may have set the variable
		if own := o.lookup(name); own != "" && strings.TrimRight(own, "/") != strings.TrimRight(endpoint, "/") {
			return "", fmt.Errorf("the variable %s names another host than ~/.aws/config: write --secret aws=https://HOST for the right one", name)
		}
	}
	if endpoint != "" {
		return endpoint, nil
	}
	region := o.awsRegion()
	if region == "" {
		return "", errors.New("no region is set, in AWS_REGION or ~/.aws/config: set it, or write --secret aws=https://HOST")
	}
	return "https://s3." + region + "." + awsDomain(region), nil
}

// awsDomains are the domains of AWS's hosts, by the beginning of their regions' names. The last
// one has all other regions.
var awsDomains = []struct{ regions, domain string }{
	{"cn-", "amazonaws.com.cn"}, {"eusc-", "amazonaws.eu"}, {"", "amazonaws.com"},
}

// awsDomain returns the domain of the hosts of a region.
func awsDomain(region string) string {
	i := slices.IndexFunc(awsDomains, func(d struct{ regions, domain string }) bool { return strings.HasPrefix(region, d.regions) })
	return awsDomains[i].domain // the last entry matches every region
}

// showAWS returns the files of AWS for the first secret of the list. The files name one host, so
// clients must put the names of buckets into paths.
func showAWS(list []shownSecret) []HomeFile {
	s := list[0]
	parts := s.parts()
	keys := madeBy + fmt.Sprintf("[default]\naws_secret_access_key = %s\naws_access_key_id = %s\n", parts[0].placeholder, parts[1].placeholder)
	if len(parts) > 2 {
		keys += "aws_session_token = " + parts[2].placeholder + "\n"
	}
	config := madeBy + "[default]\ns3 =\n    addressing_style = path\n"
	if region := cmp.Or(s.URL.awsRegion(), s.found.settings.region); region != "" {
		config += "region = " + region + "\n"
	}
	if s.URL.belowAWS() == "" {
		config += "endpoint_url = " + s.URL.String() + "\n"
	}
	return []HomeFile{{".aws/credentials", []byte(keys)}, {".aws/config", []byte(config)}}
}

// belowAWS returns the name of a host of AWS without its domain, "" for another host.
func (u URL) belowAWS() string {
	for _, d := range awsDomains {
		if rest, ok := strings.CutSuffix(u.Host, "."+d.domain); ok {
			return rest
		}
	}
	return ""
}

// awsRegion returns the region in the name of a host of AWS, "" if there is none.
func (u URL) awsRegion() string {
	if labels := strings.Split(u.belowAWS(), "."); len(labels) > 1 && regionText().MatchString(labels[len(labels)-1]) {
		return labels[len(labels)-1]
	}
	return ""
}
