package credbroker

import (
	"os"
	"testing"

	pb "github.com/credbroker/credbroker/client/go/credbrokerv1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
)

// The descriptors that the Rust crate has are compared with proto/ by a test of that crate.
func TestTheGeneratedCodeIsThatOfTheContract(t *testing.T) {
	encoded, err := os.ReadFile("../../proto/src/generated/credbroker.v1.bin")
	if err != nil {
		t.Skipf("SKIPPED: this test needs the repository around the module: %v", err)
	}
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(encoded, &set); err != nil {
		t.Fatal(err)
	}
	ours := protodesc.ToFileDescriptorProto(pb.File_credbroker_v1_credbroker_proto)
	for _, file := range set.GetFile() {
		if file.GetName() != ours.GetName() {
			continue
		}
		file.SourceCodeInfo = nil
		// That of the Rust crate leaves out the options of fields.
		for _, message := range append(file.GetMessageType(), ours.GetMessageType()...) {
			withoutOptions(message)
		}
		if !proto.Equal(file, ours) {
			t.Error("the contract has changed: run client/go/generate.sh")
		}
		return
	}
	t.Error("the descriptors have no credbroker.proto")
}

func withoutOptions(message *descriptorpb.DescriptorProto) {
	for _, field := range message.GetField() {
		field.Options = nil
	}
	for _, nested := range message.GetNestedType() {
		withoutOptions(nested)
	}
}
