//! The messages of the contract, decoded by prost alone.

/// `QueryAndAddRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Key {
    #[prost(string, tag = "1")]
    pub filter: String,
    #[prost(string, tag = "2")]
    pub key: String,
    #[prost(string, tag = "3")]
    pub request_id: String,
}

/// `QueryAndAddResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Answer {
    #[prost(bool, optional, tag = "1")]
    pub seen: Option<bool>,
}

/// `QueryAndAddBatchRequest` and `QueryAndAddStreamRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Keys {
    #[prost(string, tag = "1")]
    pub filter: String,
    #[prost(string, repeated, tag = "2")]
    pub keys: Vec<String>,
    #[prost(string, tag = "3")]
    pub request_id: String,
    #[prost(bytes = "vec", repeated, tag = "5")]
    pub binary_keys: Vec<Vec<u8>>,
}

/// `QueryAndAddBatchResponse` and `QueryAndAddStreamResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Answers {
    #[prost(bool, repeated, tag = "1")]
    pub seen: Vec<bool>,
}
