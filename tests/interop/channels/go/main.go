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

	pb "credbroker.io/tests/interop/channels/credbroker/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

const watched = 3

func main() {
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
	first, err := broker.GetCredential(ctx, &pb.GetCredentialRequest{Credential: ref})
	if err != nil {
		return err
	}
	say("get", first.Credential)

	watch, err := broker.WatchCredential(ctx, &pb.WatchCredentialRequest{Credential: ref})
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

	_, err = broker.GetCredential(ctx, &pb.GetCredentialRequest{Credential: named("not-configured")})
	failed := status.Convert(err)
	for _, detail := range failed.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			fmt.Printf("error code=%s reason=%s domain=%s\n", failed.Code(), info.Reason, info.Domain)
		}
	}

	report := &pb.ReportRejectedRequest{Credential: ref, Generation: first.Credential.Generation}
	replaced, err := broker.ReportRejected(ctx, report)
	if err != nil {
		return err
	}
	say("report", replaced.Credential)
	return nil
}

func named(provider string) *pb.CredentialRef {
	return &pb.CredentialRef{Source: &pb.CredentialRef_Provider{Provider: provider}}
}

func say(what string, credential *pb.Credential) {
	token := "no"
	if credential.Token != "" {
		token = "yes"
	}
	fmt.Printf("%s generation=%s token=%s\n", what, credential.Generation, token)
}
