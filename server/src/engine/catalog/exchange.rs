//! Import and export: filters from and to the files of other programs.

use std::{
    io::Read,
    sync::{Arc, Weak},
    time::{Instant, SystemTime},
};

use tokio::sync::OwnedSemaphorePermit;

use super::{
    Catalog,
    filters::random_secret,
    names::{Promise, given_name},
};
use crate::{
    engine::{
        Engine, background,
        call::filter_name,
        commit::{Journal, versions::Versions},
        error::EngineError,
        filter::{Filter, FilterStatus, Shard},
    },
    filter::{
        exchange::{ExchangeError, guava, redisbloom},
        spec::{BodySpec, FilterSpec},
    },
    store::{FilterId, FilterName},
};

/// The most words in a piece of an export: 32 KiB.
const PIECE_WORDS: usize = 4096;

/// The format of a file: the program that writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileFormat {
    /// The output of `BloomFilter.writeTo` of Guava.
    Guava,
    /// The header and the chunks of `BF.SCANDUMP` of RedisBloom.
    RedisBloom,
}

/// The parameters of an import.
#[derive(Debug)]
pub struct Import {
    /// The name of the new filter.
    pub name: String,
    /// The format of the file.
    pub format: FileFormat,
    /// The length of the file.
    pub file_bytes: u64,
    /// The capacity of the filter. `None`: the capacity that the file gives.
    pub capacity: Option<u64>,
}

/// An export of a filter to a file of Guava. It holds only a weak reference to the filter: if the
/// filter is deleted or reset meanwhile, the export ends.
#[derive(Debug)]
pub struct Export {
    filter: Weak<Filter>,
    name: FilterName,
    shape: guava::Shape,
    /// The header, until it has been returned.
    header: Option<Vec<u8>>,
    /// The number of words that have been returned.
    next: u64,
}

impl Engine {
    /// Creates a filter from a file of another program, and returns its status when the filter is
    /// on stable storage. A thread of its own reads the file. The size in the file is checked
    /// before any memory is allocated. The file must end where the filter ends.
    ///
    /// # Errors
    ///
    /// [`EngineError::Import`], [`EngineError::NameTaken`], [`EngineError::TooManyImports`],
    /// [`EngineError::OverBudget`] or another [`EngineError`]: there is no filter.
    /// [`EngineError::NotDurable`]: the filter can exist after a crash.
    pub async fn import_filter(
        &self,
        import: Import,
        file: impl Read + Send + 'static,
    ) -> Result<FilterStatus, EngineError> {
        self.data.check_recovered()?;
        let name = given_name("name", &import.name)?;
        let permit = self.catalog.imports.clone().try_acquire_owned();
        let permit = permit.map_err(|_| EngineError::TooManyImports)?;
        let promise = {
            let naming = self.naming().await;
            self.promise(&naming, name.clone())?
        };
        let catalog = self.catalog.clone();
        let read = move || {
            let filter = catalog.read_import(name, &import, file)?;
            Ok((Arc::new(filter), promise, permit))
        };
        let (filter, promise, permit): (_, Promise, OwnedSemaphorePermit) =
            background::run("import", read).await?;
        let lock = filter.snapshot_lock().await;
        let catalog = self.catalog.clone();
        let store = move || {
            filter.store(&catalog.directory, &catalog.data.barrier, lock)?;
            filter.sample(Instant::now());
            catalog.data.registry.insert(filter.clone());
            drop((promise, permit));
            Ok(filter.status())
        };
        background::run("import", store).await
    }

    /// Begins an export of a filter to a file of Guava. The file contains every key that was
    /// acknowledged before. Of a key that is added meanwhile it contains those bits that are set
    /// when their words are read.
    ///
    /// # Errors
    ///
    /// [`EngineError::UnknownFilter`], or [`EngineError::NotExportable`] if the filter has another
    /// layout.
    pub async fn export_filter(&self, name: &str) -> Result<Export, EngineError> {
        let name = filter_name("name", name)?;
        let filter = self.filter_named(name.clone())?;
        let spec = filter.spec();
        let BodySpec::Guava(shape) = spec.body else {
            let layout = spec.body.layout();
            return Err(EngineError::NotExportable { name, layout });
        };
        let header = guava::FilterWriter::create(Vec::new(), &shape);
        let header = header.map(guava::FilterWriter::into_inner);
        let header = header.map_err(|error| EngineError::internal("no header", error))?;
        Ok(Export {
            filter: Arc::downgrade(&filter),
            name,
            shape,
            header: Some(header),
            next: 0,
        })
    }
}

impl Catalog {
    fn read_import(
        &self,
        name: FilterName,
        import: &Import,
        mut file: impl Read,
    ) -> Result<Filter, EngineError> {
        let (size, capacity) = (import.file_bytes, import.capacity);
        let filter = match import.format {
            FileFormat::Guava => {
                let reader = guava::FilterReader::open(&mut file, size)?;
                let spec = FilterSpec::of_guava(reader.shape(), capacity);
                let mut filter = self.for_import(name, spec)?;
                reader.read_words(|first, words| {
                    self.data.barrier.pass()?;
                    filter.import_words(first, words);
                    Ok::<_, EngineError>(())
                })?;
                filter.finish_import(None, self.data.journal.get());
                filter
            }
            FileFormat::RedisBloom => {
                let reader = redisbloom::DumpReader::open(&mut file, size)?;
                let (keys, chain) = (reader.chain().keys_added(), reader.chain().clone());
                let mut filter = self.for_import(name, FilterSpec::of_chain(&chain, capacity))?;
                let (mut layer, mut first_word) = (0, 0);
                reader.read_words(|number, first, words| {
                    self.data.barrier.pass()?;
                    while layer < number {
                        let before = chain.layers().get(layer);
                        first_word += before.map_or(0, redisbloom::ChainLayer::word_count);
                        layer += 1;
                    }
                    filter.import_words(first_word + first, words);
                    Ok::<_, EngineError>(())
                })?;
                filter.finish_import(Some(keys), self.data.journal.get());
                filter
            }
        };
        // The sender must end the file here.
        match file.read(&mut [0]).map_err(ExchangeError::Read)? {
            0 => Ok(filter),
            _ => Err(EngineError::LongImport { file_bytes: size }),
        }
    }

    /// Returns an empty filter for the content of a file.
    fn for_import(&self, name: FilterName, spec: FilterSpec) -> Result<Filter, EngineError> {
        let (secret, now) = (random_secret()?, SystemTime::now());
        let id = FilterId(self.directory.new_number());
        Filter::new(id, name, spec, secret, now, &self.budget, &self.clock)
    }
}

impl Export {
    /// Returns the length of the file.
    pub fn file_bytes(&self) -> u64 {
        self.shape.file_bytes()
    }

    /// Returns the next piece of the file; `None` at its end.
    ///
    /// # Errors
    ///
    /// [`EngineError::ExportEnded`] if the filter does not exist any more.
    pub fn next_piece(&mut self) -> Result<Option<Vec<u8>>, EngineError> {
        if let Some(header) = self.header.take() {
            return Ok(Some(header));
        }
        let left = self.shape.word_count() - self.next;
        if left == 0 {
            return Ok(None);
        }
        let filter = self.filter.upgrade();
        let name = || self.name.clone();
        let filter = filter.ok_or_else(|| EngineError::ExportEnded { name: name() })?;
        let mut words = vec![0; left.min(PIECE_WORDS as u64) as usize];
        filter.export_words(self.next, &mut words);
        self.next += words.len() as u64;
        let bytes: Vec<[u8; 8]> = words.iter().map(|word| word.to_be_bytes()).collect();
        Ok(Some(bytes.into_flattened()))
    }
}

/// The version of all imported bits.
const IMPORTED: u64 = 1;

impl Filter {
    /// Sets the bits of `words` in a filter that no other thread uses yet. `first` is the index of
    /// the first word in the array.
    pub fn import_words(&mut self, first: u64, words: &[u64]) {
        let shard_words = self.shape.shard_words();
        for (index, &word) in (first as usize..).zip(words) {
            // Memory that has no bits is left untouched.
            if word == 0 {
                continue;
            }
            let Some(shard) = self.body.whole_mut().get_mut(index / shard_words) else {
                return;
            };
            if let Some(place) = shard.words.get_mut(index % shard_words) {
                let added = word & !*place;
                *place |= word;
                shard.state.bits_set += u64::from(added.count_ones());
            }
        }
    }

    /// Ends an import. The filter then counts `keys` keys as added, or, if `keys` is `None`, the
    /// number that it estimates from its bits.
    pub fn finish_import(&mut self, keys: Option<u64>, journal: Option<&Journal>) {
        let shards = self.shape.shard_count();
        let content = self.content();
        let bits_set = content.bits_set;
        let estimate = || match content.estimated_keys() {
            Some(keys) => keys.round() as u64,
            // If all bits are set, there is no estimate. There were at least this many keys.
            None => bits_set / u64::from(self.spec.body.hash_count()).max(1),
        };
        let keys = keys.unwrap_or_else(estimate);
        // The keys are divided among the shards by their bits. Each key has set at least one bit.
        let (mut bits_before, mut keys_before) = (0_u64, 0);
        for shard in 0..shards {
            let Some(Shard { state, .. }) = self.body.whole_mut().get_mut(shard) else {
                return;
            };
            if state.bits_set == 0 {
                continue;
            }
            bits_before += state.bits_set;
            let upto = u128::from(keys) * u128::from(bits_before) / u128::from(bits_set);
            state.keys_added = (upto as u64 - keys_before).min(state.bits_set);
            state.version = IMPORTED;
            keys_before = upto as u64;
        }
        self.versions = Versions::behind(IMPORTED);
        if let Some(journal) = journal {
            self.set_log(journal);
        }
    }

    /// Copies words of the array into `words`, from the index `first` on. Locks one shard at a time
    /// (with its neighbours behind the same lock), and only against writers.
    pub fn export_words(&self, first: u64, words: &mut [u64]) {
        let shard_words = self.shape.shard_words();
        let (mut next, mut rest) = (first as usize, words);
        while !rest.is_empty() {
            let (number, from) = (next / shard_words, next % shard_words);
            let length = rest.len().min(shard_words - from);
            let (here, behind) = rest.split_at_mut(length);
            let Some(shard) = self.body.whole().read(number) else {
                return;
            };
            if let Some(words) = shard.words.get(from..from + length) {
                here.copy_from_slice(words);
            }
            next += length;
            rest = behind;
        }
    }
}
