// Asks a broker through grpc-go's default channel: get, watch, an error's reason, report. Prints no secret.
//
// Usage: channels SOCKET PROVIDER
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	pb "credbroker.io/tests/interop/channels/gen/github.com/credbroker/credbroker/proto/credbroker/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
)

const watched = 3

func main() {
	if len(os.Args) == 2 && os.Args[1] == "--print" {
		print()
		return
	}
	if err := ask(os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

func ask(socket, provider string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	broker := pb.NewCredentialBrokerClient(conn)
	ref := named(provider)
	first, err := broker.GetCredential(ctx, &pb.GetCredentialRequest{Ref: ref})
	if err != nil {
		return err
	}
	say("get", first.Credential)

	watch, err := broker.WatchCredential(ctx, &pb.WatchCredentialRequest{Ref: ref})
	if err != nil {
		return err
	}
	for range watched {
		answer, err := watch.Recv()
		if err != nil {
			return err
		}
		say("watch", answer.Credential)
	}

	_, err = broker.GetCredential(ctx, &pb.GetCredentialRequest{Ref: named("not-configured")})
	failed := status.Convert(err)
	for _, detail := range failed.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			fmt.Printf("error code=%s reason=%s domain=%s\n", failed.Code(), info.Reason, info.Domain)
			fmt.Printf("message %s\n", failed.Message())
		}
	}

	report := &pb.ReportRejectedRequest{Ref: ref, Generation: first.Credential.Generation}
	replaced, err := broker.ReportRejected(ctx, report)
	if err != nil {
		return err
	}
	say("report", replaced.Credential)
	fmt.Printf("outcome=%s\n", replaced.Outcome)
	return nil
}

func named(provider string) *pb.CredentialRef {
	return &pb.CredentialRef{Source: &pb.CredentialRef_Provider{Provider: &pb.ProviderRef{Name: provider}}}
}

func say(what string, credential *pb.Credential) {
	token := "no"
	if credential.Token != nil {
		token = "yes"
	}
	fmt.Printf("%s generation=%s token=%s\n", what, credential.Generation, token)
}

// Prints a credential message that comes from no broker: what a log would show of its secret fields.
func print() {
	token := "c4n4ry"
	credential := &pb.Credential{Generation: "g-1", Token: &token, ClientKeyData: []byte(token)}
	fmt.Printf("%v\n", credential)
	fmt.Println(prototext.MarshalOptions{}.Format(credential))
}
