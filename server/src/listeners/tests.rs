use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use tokio::net;

use super::*;

fn addresses(texts: &[&str]) -> Vec<Address> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

async fn bind(texts: &[&str]) -> Result<Listeners, ListenError> {
    Listeners::bind(&addresses(texts)).await
}

fn unix(path: &Path) -> Address {
    Address::Unix(path.to_owned())
}

#[tokio::test]
async fn connections_come_from_all_addresses() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let mut all = addresses(&["127.0.0.1:0", "127.0.0.1:0"]);
    all.push(unix(&path));
    let listeners = Listeners::bind(&all).await.unwrap();
    let ports: Vec<SocketAddr> = listeners.addresses().collect();
    assert_ne!(ports[0], ports[1]);
    assert_eq!(
        listeners.to_string(),
        format!("{}, {}, unix:{}", ports[0], ports[1], path.display())
    );
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    for port in [ports[1], ports[0], ports[1]] {
        let _client = net::TcpStream::connect(port).await.unwrap();
        assert!(matches!(listeners.accept().await.unwrap(), Stream::Tcp(_)));
    }
    let _client = net::UnixStream::connect(&path).await.unwrap();
    assert!(matches!(listeners.accept().await.unwrap(), Stream::Unix(_)));
    drop(listeners);
    assert!(!path.exists());
}

#[tokio::test]
async fn a_host_has_one_port_on_all_its_addresses() {
    let listeners = bind(&["localhost:0"]).await.unwrap();
    let bound: Vec<SocketAddr> = listeners.addresses().collect();
    assert!(!bound.is_empty());
    assert!(bound.iter().all(|address| address.ip().is_loopback()));
    assert!(
        bound
            .iter()
            .all(|address| address.port() == bound[0].port())
    );

    let error = bind(&["no-such-host.invalid:1"]).await.unwrap_err();
    assert_eq!(error.address, "no-such-host.invalid:1");
}

#[tokio::test]
async fn an_address_that_is_named_twice_is_listened_on_once() {
    let first = bind(&["127.0.0.1:0"]).await.unwrap();
    let port = first.addresses().next().unwrap().port();
    drop(first);
    let address = format!("127.0.0.1:{port}");
    let twice = bind(&[&address, &address]).await.unwrap();
    assert_eq!(twice.addresses().count(), 1);

    let taken = bind(&[&address]).await.unwrap_err();
    assert_eq!(taken.address, address);
    assert_eq!(taken.source.kind(), io::ErrorKind::AddrInUse);
}

#[tokio::test]
async fn all_addresses_of_both_families_can_be_named() {
    let any = bind(&["0.0.0.0:0"]).await.unwrap();
    let port = any.addresses().next().unwrap().port();
    drop(any);
    let both = [format!("0.0.0.0:{port}"), format!("[::]:{port}")];
    match bind(&both.each_ref().map(String::as_str)).await {
        Ok(both) => assert_eq!(both.addresses().count(), 2),
        // A machine without IPv6.
        Err(error) => assert!(is_not_ours(&error.source), "{error:?}"),
    }
}

#[tokio::test]
async fn a_socket_that_was_left_is_replaced_and_one_in_use_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let first = Listeners::bind(&[unix(&path)]).await.unwrap();
    let refused = Listeners::bind(&[unix(&path)]).await.unwrap_err();
    assert_eq!(refused.source.kind(), io::ErrorKind::AddrInUse);
    assert!(net::UnixStream::connect(&path).await.is_ok());
    drop(first);

    // As after SIGKILL.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let second = Listeners::bind(&[unix(&path)]).await.unwrap();
    assert!(net::UnixStream::connect(&path).await.is_ok());

    // A file that another process has put in its place stays.
    fs::remove_file(&path).unwrap();
    fs::write(&path, "mine").unwrap();
    drop(second);
    assert_eq!(fs::read(&path).unwrap(), b"mine");
    let refused = Listeners::bind(&[unix(&path)]).await.unwrap_err();
    assert_eq!(refused.source.kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(fs::read(&path).unwrap(), b"mine");
}
