//! gRPC on HTTP/2 without tonic: messages and the memory that they hold, responses, deadlines, and
//! the calls in flight. Nothing here knows an rpc.

pub mod calls;
pub mod deadline;
pub mod head;
pub mod malformed;
pub mod memory;
pub mod messages;
pub mod received;
pub mod request_body;
pub mod response;
