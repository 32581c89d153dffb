// Command client gets a credential, watches it, handles an error by its reason, and reports a rejection. It prints no
// secret. Controllers use the module client/go instead.
//
// Usage: client SOCKET PROVIDER
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	pb "credbroker.io/examples/go/gen/github.com/credbroker/credbroker/proto/credbroker/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

const watched = 3

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	// The request has only a name. Before you send a secret, check the owner of the socket.
	conn, err := grpc.NewClient("unix:"+os.Args[1], grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(err)
	defer conn.Close()
	broker, ref := pb.NewCredentialBrokerClient(conn), named(os.Args[2])
	first, err := broker.GetCredential(ctx, &pb.GetCredentialRequest{Ref: ref})
	check(err)
	say("get", first.Credential)

	watch, err := broker.WatchCredential(ctx, &pb.WatchCredentialRequest{Ref: ref})
	check(err)
	for range watched {
		message, err := watch.Recv()
		check(err)
		say("watch", message.Credential)
	}

	_, err = broker.GetCredential(ctx, &pb.GetCredentialRequest{Ref: named("not-configured")})
	failed := status.Convert(err)
	for _, detail := range failed.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.Reason == pb.ErrorReason_UNKNOWN_PROVIDER.String() {
			fmt.Printf("error code=%s reason=%s domain=%s\n", failed.Code(), info.Reason, info.Domain)
			fmt.Printf("message %s\n", failed.Message())
		}
	}

	// As after an answer 401 of an API server.
	report, err := broker.ReportRejected(ctx, &pb.ReportRejectedRequest{Ref: ref, Generation: first.Credential.Generation})
	check(err)
	say("report", report.Credential)
	fmt.Printf("outcome=%s\n", report.Outcome)
}

func named(provider string) *pb.CredentialRef {
	return &pb.CredentialRef{Source: &pb.CredentialRef_Provider{Provider: &pb.ProviderRef{Name: provider}}}
}

func say(what string, credential *pb.Credential) {
	token := map[bool]string{true: "yes", false: "no"}[credential.Token != nil]
	fmt.Printf("%s generation=%s token=%s\n", what, credential.Generation, token)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
