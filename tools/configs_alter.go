package tools

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"cairn/internal/properties"
)

// AlterConfigsOptions says what to change of an entity's configs.
type AlterConfigsOptions struct {
	ConfigEntity
	Add     string // Kafka's k=v,k=[a,b]
	AddFile string // a file of Java properties
	Delete  string // names, separated by commas
}

// AlterConfigs changes the configs of a topic, of a broker, or the brokers' defaults.
func AlterConfigs(ctx context.Context, conn Connection, o AlterConfigsOptions, out Output) error {
	set, unset, err := o.changes()
	if err != nil {
		return UsageError{err}
	}
	return withAdmin(ctx, conn, out, func(ctx context.Context, cl *kgo.Client) error {
		if err := o.present(ctx, cl, unset); err != nil {
			return err
		}
		if err := alterConfigs(ctx, cl, o.ConfigEntity, set, unset); err != nil {
			return err
		}
		if out.JSON {
			return out.writeJSON(map[string]any{"entityType": o.Type, "entityName": o.Name, "set": set, "deleted": unset})
		}
		_, err := fmt.Fprintf(out.Out, "Completed updating %s.\n", o.words())
		return err
	})
}

func (o AlterConfigsOptions) changes() (set map[string]string, unset []string, err error) {
	if err := o.check(); err != nil {
		return nil, nil, err
	}
	if o.Name == "" && !o.Default {
		return nil, nil, errors.New("say whose configs: --entity-name NAME, or --entity-default for those of all brokers")
	}
	set = map[string]string{}
	if o.AddFile != "" {
		text, err := os.ReadFile(o.AddFile)
		if err != nil {
			return nil, nil, err
		}
		list, err := properties.Parse(string(text))
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", o.AddFile, err)
		}
		set = list.Map()
	}
	if err := addPairs(set, o.Add); err != nil {
		return nil, nil, err
	}
	unset = []string{}
	for _, name := range strings.Split(o.Delete, ",") {
		if name = strings.TrimSpace(name); name != "" {
			unset = append(unset, name)
		}
	}
	for _, name := range unset {
		if _, twice := set[name]; twice {
			return nil, nil, fmt.Errorf("%s is to be set and to be deleted", name)
		}
	}
	if len(set)+len(unset) == 0 {
		return nil, nil, errors.New("nothing to alter: give --add-config, --add-config-file or --delete-config")
	}
	return set, unset, nil
}

// addPairs reads Kafka's k=v,k=[a,b]: brackets keep the commas of a list together.
func addPairs(set map[string]string, text string) error {
	for rest := strings.TrimSpace(text); rest != ""; {
		name, value, ok := strings.Cut(rest, "=")
		if name = strings.TrimSpace(name); !ok || name == "" || strings.Contains(name, ",") {
			return fmt.Errorf("--add-config %s: want NAME=VALUE[,NAME=VALUE...], a list in square brackets: NAME=[A,B]", text)
		}
		end := strings.IndexByte(value, ',')
		if strings.HasPrefix(value, "[") {
			closing := strings.IndexByte(value, ']')
			if closing < 0 || closing+1 < len(value) && value[closing+1] != ',' {
				return fmt.Errorf("--add-config %s: the list of %s ends with ] and a comma", text, name)
			}
			end = closing + 1
		}
		if end < 0 || end >= len(value) {
			end, rest = len(value), ""
		} else {
			rest = value[end+1:]
		}
		set[name] = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(value[:end]), "["), "]")
	}
	return nil
}

// present refuses to delete what is not set, as Kafka does: it is likely to be misspelt.
func (o AlterConfigsOptions) present(ctx context.Context, cl *kgo.Client, unset []string) error {
	if len(unset) == 0 {
		return nil
	}
	configs, err := o.describe(ctx, cl, false)
	if err != nil {
		return err
	}
	var missing []string
	for _, name := range unset {
		if !slices.ContainsFunc(configs, func(c describedConfig) bool { return c.Name == name }) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("invalid config(s): %s; `cairn configs describe` shows what is set", strings.Join(missing, ","))
	}
	return nil
}

// alterConfigs sets and deletes configs of one entity.
func alterConfigs(ctx context.Context, cl *kgo.Client, e ConfigEntity, set map[string]string, unset []string) error {
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = e.resource()
	for _, name := range slices.Sorted(maps.Keys(set)) {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Op, c.Value = name, configSet, kmsg.StringPtr(set[name])
		res.Configs = append(res.Configs, c)
	}
	for _, name := range unset {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Op = name, configDelete
		res.Configs = append(res.Configs, c)
	}
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Resources = append(req.Resources, res)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return e.unreached(err)
	}
	for _, r := range resp.Resources {
		if err := brokerError(r.ErrorCode, r.ErrorMessage); err != nil {
			return e.refused(err)
		}
	}
	return nil
}
