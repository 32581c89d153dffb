# Asks a broker through the default channel of Ruby's grpc: get, watch, an error's reason, report. Prints no secret.
#
# Usage: ruby -I GENERATED client.rb SOCKET PROVIDER

require 'grpc'
require 'google/protobuf/well_known_types'
require 'google/rpc/error_details_pb'
require 'credbroker/v1/credbroker_services_pb'

WATCHED = 3
include Credbroker::V1

def say(what, credential)
  puts "#{what} generation=#{credential.generation} token=#{credential.has_token? ? 'yes' : 'no'}"
end

$stdout.sync = true
socket, provider = ARGV
deadline = -> { Time.now + 60 }
broker = CredentialBroker::Stub.new("unix:#{socket}", :this_channel_is_insecure)
ref = CredentialRef.new(provider: ProviderRef.new(name: provider))
first = broker.get_credential(GetCredentialRequest.new(ref: ref), deadline: deadline.call).credential
say('get', first)

watch = broker.watch_credential(
  WatchCredentialRequest.new(ref: ref), deadline: deadline.call, return_op: true
)
watch.execute.each.with_index(1) do |answer, seen|
  say('watch', answer.credential)
  break if seen == WATCHED
end
watch.cancel

begin
  unknown = CredentialRef.new(provider: ProviderRef.new(name: 'not-configured'))
  broker.get_credential(GetCredentialRequest.new(ref: unknown), deadline: deadline.call)
rescue GRPC::BadStatus => error
  info = error.to_rpc_status.details.first.unpack(Google::Rpc::ErrorInfo)
  code = GRPC::Core::StatusCodes.constants.find { |name| GRPC::Core::StatusCodes.const_get(name) == error.code }
  puts "error code=#{code} reason=#{info.reason}"
  puts "message #{error.details}"
end

report = ReportRejectedRequest.new(ref: ref, generation: first.generation)
answer = broker.report_rejected(report, deadline: deadline.call)
say('report', answer.credential)
puts "outcome=#{answer.outcome}"
