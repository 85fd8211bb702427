package main

import (
	"net"
	"os"
	"strconv"

	"github.com/urfave/cli/v2"

	"cairn/tools/dev"
)

const devHelp = `Starts brokers and a controller as processes of this binary on 127.0.0.1, prints the bootstrap address, and ends and removes all of it at Ctrl-C.
Broker 1 listens on 9092 if that port and those behind it are free. Lines of standard input kill, stop, freeze, thaw and start nodes; help lists them.

Examples:

   cairn dev
   cairn dev --nodes 5 --controllers 3 --override min.insync.replicas=2 --keep`

func devCommand() *cli.Command {
	return &cli.Command{
		Name: "dev", Usage: "a cluster in one terminal", Description: devHelp,
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "nodes", Usage: "`N` brokers", Value: 3},
			&cli.IntFlag{Name: "controllers", Usage: "`N` controllers, nodes of their own", Value: 1},
			&cli.IntFlag{Name: "port", Usage: "broker 1 listens on `PORT`, the others behind it; 0: free ones (default: 9092 if free)", Value: -1, DefaultText: ""},
			&cli.StringSliceFlag{Name: "override", Usage: "a property of all nodes, `NAME=VALUE`; may be repeated"},
			&cli.BoolFlag{Name: "keep", Usage: "keep data and logs"},
			jsonFlag(),
		},
		Action: func(c *cli.Context) error {
			binary, err := os.Executable()
			if err != nil {
				return err
			}
			port := c.Int("port")
			if port == -1 {
				port = usualPort(c.Int("nodes"))
			}
			return dev.Run(c.Context, dev.Options{
				Binary: binary, Nodes: c.Int("nodes"), Controllers: c.Int("controllers"), Port: port, Properties: c.StringSlice("override"),
				Keep: c.Bool("keep"), In: os.Stdin,
			}, output(c))
		},
	}
}

// usualPort is 9092 if that and the ports behind it are free, else 0.
func usualPort(n int) int {
	const usual = 9092
	for i := range min(max(n, 1), 100) {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(usual+i)))
		if err != nil {
			return 0
		}
		if err := l.Close(); err != nil {
			return 0
		}
	}
	return usual
}
