package broker
import ("testing";"cairn/broker/controller";"cairn/internal/ids";"github.com/twmb/franz-go/pkg/kadm")
func TestZZ(t *testing.T) {
	c := startCluster(t, 3)
	defer c.close(t)
	cl := c.client(t)
	v := "2"
	if _, err := kadm.NewClient(cl).CreateTopic(testContext(t), 1, 3, map[string]*string{"min.insync.replicas": &v}, "t"); err != nil {
		t.Fatal(err)
	}
	mustProduce(t, cl, "t", 0, 10)
	c.await(t, "in sync", "t", whole)
	last := ids.NodeID(2)
	for _, id := range []int{3, 1} {
		if ids.NodeID(id) != last {
			c.stop(t, id)
			t.Logf("%+v", c.partition("t"))
		}
	}
	c.await(t, "the last one leads", "t", func(img *controller.Image, p *controller.Partition) bool { t.Logf("%+v", p);return img.Leader(p) == last })
	t.Logf("%+v", c.partition("t"))
}
