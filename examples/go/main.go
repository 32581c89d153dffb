// Command client gets a credential, watches it, handles an error by its reason, and reports a rejection. It prints no
// secret. Controllers use the module client/go instead.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	pb "credbroker.io/examples/go/gen/github.com/credbroker/credbroker/client/go/credbrokerv1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn := must(grpc.NewClient("unix:"+os.Args[1], grpc.WithTransportCredentials(insecure.NewCredentials())))
	broker, ref := pb.NewCredentialBrokerClient(conn), named(os.Args[2])
	first := must(broker.GetCredential(ctx, &pb.GetCredentialRequest{Ref: ref})).Credential
	say("get", first)
	watch := must(broker.WatchCredential(ctx, &pb.WatchCredentialRequest{Ref: ref}))
	for range 3 {
		say("watch", must(watch.Recv()).Credential)
	}
	_, err := broker.GetCredential(ctx, &pb.GetCredentialRequest{Ref: named("not-configured")})
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.Reason == pb.ErrorReason_UNKNOWN_PROVIDER.String() {
			fmt.Printf("error code=%s reason=%s\nmessage %s\n", status.Code(err), info.Reason, status.Convert(err).Message())
		}
	}
	// As after an answer 401 of an API server.
	report := must(broker.ReportRejected(ctx, &pb.ReportRejectedRequest{Ref: ref, Generation: first.Generation}))
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

func must[T any](answer T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return answer
}
