//! A record as bytes on the wire: clients let nobody send a header whose name is no text, brokers take it.

use std::io::{Read, Write};
use std::net::TcpStream;

/// Sends one record to partition 0 of a topic and waits until the broker has it.
pub(super) fn produce(address: &str, topic: &str, value: &[u8], header: (&[u8], &[u8])) {
    let batch = batch(value, header);
    let mut request = Vec::new();
    // Produce, version 3, as client `raw`; no transaction, all replicas, 30 s; one topic with one partition.
    request.extend([0, 0, 0, 3, 0, 0, 0, 1, 0, 3]);
    request.extend(b"raw");
    request.extend([0xff, 0xff, 0xff, 0xff]);
    request.extend(30_000_i32.to_be_bytes());
    request.extend(1_i32.to_be_bytes());
    request.extend((topic.len() as i16).to_be_bytes());
    request.extend(topic.as_bytes());
    request.extend(1_i32.to_be_bytes());
    request.extend(0_i32.to_be_bytes());
    request.extend((batch.len() as i32).to_be_bytes());
    request.extend(batch);

    let mut broker = TcpStream::connect(address).unwrap();
    broker.write_all(&(request.len() as i32).to_be_bytes()).unwrap();
    broker.write_all(&request).unwrap();
    let mut length = [0; 4];
    broker.read_exact(&mut length).unwrap();
    let mut answer = vec![0; i32::from_be_bytes(length) as usize];
    broker.read_exact(&mut answer).unwrap();
    // Correlation, one topic and its name, one partition and its number; then what became of it.
    let at = 4 + 4 + 2 + topic.len() + 4 + 4;
    assert_eq!(answer[at..at + 2], [0, 0], "the broker takes it: {answer:?}");
}

/// A batch of one record, in the second version of the format.
fn batch(value: &[u8], (name, said): (&[u8], &[u8])) -> Vec<u8> {
    let mut record = vec![0];
    for number in [0, 0, -1, value.len() as i64] {
        record.extend(varint(number));
    }
    record.extend(value);
    record.extend(varint(1));
    for text in [name, said] {
        record.extend(varint(text.len() as i64));
        record.extend(text);
    }
    // No attributes; the last record is the first; two times; no producer, epoch or sequence; one record.
    let mut summed = vec![0; 6];
    summed.extend(1_700_000_000_000_i64.to_be_bytes().repeat(2));
    summed.extend([0xff; 14]);
    summed.extend(1_i32.to_be_bytes());
    summed.extend(varint(record.len() as i64));
    summed.extend(record);

    let mut batch = 0_i64.to_be_bytes().to_vec();
    batch.extend((4 + 1 + 4 + summed.len() as i32).to_be_bytes());
    batch.extend([0xff, 0xff, 0xff, 0xff, 2]);
    batch.extend(crc32c(&summed).to_be_bytes());
    batch.extend(summed);
    batch
}

fn varint(number: i64) -> Vec<u8> {
    let mut left = ((number << 1) ^ (number >> 63)) as u64;
    let mut bytes = Vec::new();
    while left > 0x7f {
        bytes.push(left as u8 | 0x80);
        left >>= 7;
    }
    bytes.push(left as u8);
    bytes
}

fn crc32c(bytes: &[u8]) -> u32 {
    let step = |sum: u32| if sum & 1 == 1 { (sum >> 1) ^ 0x82f6_3b78 } else { sum >> 1 };
    !bytes.iter().fold(!0, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), |sum, _| step(sum)))
}
