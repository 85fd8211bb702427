package main

import (
	"github.com/urfave/cli/v2"

	"cairn/tools"
)

const configsHelp = `--entity-type is topics, groups or brokers, with --entity-name; --entity-default stands for the defaults of all brokers. --topic NAME, --group ID,
--broker ID and --broker-defaults are short for that. There are no quotas yet, so users, clients and ips have no configs.

`

func configsCommand() *cli.Command {
	return &cli.Command{
		Name:        "configs",
		Usage:       "describe and alter the configs of topics, groups and brokers",
		Description: "Examples:\n\n   cairn configs describe --topic orders\n   cairn configs alter --topic orders --add-config retention.ms=3600000",
		Subcommands: []*cli.Command{configsDescribeCommand(), configsAlterCommand()},
	}
}

func entityFlags() []cli.Flag {
	return append(connectionFlags(), jsonFlag(),
		&cli.StringFlag{Name: "entity-type", Usage: "`TYPE`: topics, groups or brokers"},
		&cli.StringFlag{Name: "entity-name", Usage: "`NAME` of the topic or group, or id of the broker"},
		&cli.BoolFlag{Name: "entity-default", Usage: "the defaults of all brokers"},
		&cli.StringFlag{Name: "topic", Usage: "short for --entity-type topics --entity-name `NAME`"},
		&cli.StringFlag{Name: "group", Usage: "short for --entity-type groups --entity-name `ID`"},
		&cli.StringFlag{Name: "broker", Usage: "short for --entity-type brokers --entity-name `ID`"},
		&cli.BoolFlag{Name: "broker-defaults", Usage: "short for --entity-type brokers --entity-default"},
	)
}

// entity reads entityFlags, which name one thing in one way.
func entity(c *cli.Context) (tools.ConfigEntity, error) {
	e := tools.ConfigEntity{Type: c.String("entity-type"), Name: c.String("entity-name"), Default: c.Bool("entity-default")}
	var ways []tools.ConfigEntity
	if e != (tools.ConfigEntity{}) {
		ways = append(ways, e)
	}
	if name := c.String("topic"); name != "" {
		ways = append(ways, tools.ConfigEntity{Type: "topics", Name: name})
	}
	if name := c.String("group"); name != "" {
		ways = append(ways, tools.ConfigEntity{Type: "groups", Name: name})
	}
	if name := c.String("broker"); name != "" {
		ways = append(ways, tools.ConfigEntity{Type: "brokers", Name: name})
	}
	if c.Bool("broker-defaults") {
		ways = append(ways, tools.ConfigEntity{Type: "brokers", Default: true})
	}
	if len(ways) != 1 {
		return e, usagef("say whose configs in one way: --entity-type with --entity-name or --entity-default, --topic, --group, --broker or --broker-defaults")
	}
	return ways[0], nil
}

func configsDescribeCommand() *cli.Command {
	return &cli.Command{
		Name:  "describe",
		Usage: "print configs with where they come from",
		Description: configsHelp + "Without --all only what was set for it is printed; without a name all topics, all groups, or all brokers and their defaults.\n\nExamples:\n\n" +
			"   cairn configs describe --topic orders\n   cairn configs describe --entity-type brokers --entity-name 1 --all",
		Flags: append(entityFlags(), &cli.BoolFlag{Name: "all", Usage: "all configs, those too that have their default"}),
		Action: func(c *cli.Context) error {
			e, err := entity(c)
			if err != nil {
				return err
			}
			return tools.DescribeConfigs(c.Context, connection(c, ""), e, c.Bool("all"), output(c))
		},
	}
}

func configsAlterCommand() *cli.Command {
	return &cli.Command{
		Name:  "alter",
		Usage: "set and delete configs",
		Description: configsHelp + "Examples:\n\n   cairn configs alter --topic orders --add-config retention.ms=3600000,cleanup.policy=[compact,delete]\n" +
			"   cairn configs alter --group billing --add-config consumer.session.timeout.ms=60000\n" +
			"   cairn configs alter --broker-defaults --delete-config message.max.bytes",
		Flags: append(entityFlags(),
			&cli.StringFlag{Name: "add-config", Usage: "`NAME=VALUE[,NAME=VALUE...]`, a list in square brackets"},
			&cli.StringFlag{Name: "add-config-file", Usage: "`FILE` of properties to set; --add-config wins"},
			&cli.StringFlag{Name: "delete-config", Usage: "`NAME[,NAME...]` to reset to their defaults"},
		),
		Action: func(c *cli.Context) error {
			e, err := entity(c)
			if err != nil {
				return err
			}
			return tools.AlterConfigs(c.Context, connection(c, ""), tools.AlterConfigsOptions{
				ConfigEntity: e, Add: c.String("add-config"), AddFile: c.String("add-config-file"), Delete: c.String("delete-config"),
			}, output(c))
		},
	}
}
