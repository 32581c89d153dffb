// Command printed prints a credential message that comes from no broker: what a log would show of its secret fields.
package main

import (
	"fmt"

	pb "credbroker.io/examples/go/gen/github.com/credbroker/credbroker/client/go/credbrokerv1"
	"google.golang.org/protobuf/encoding/prototext"
)

func main() {
	token := "c4n4ry"
	credential := &pb.Credential{Generation: "g-1", Token: &token, ClientKeyData: []byte(token)}
	fmt.Printf("%v\n", credential)
	fmt.Println(prototext.MarshalOptions{}.Format(credential))
}
