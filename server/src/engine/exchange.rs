//! Filters of other programs: imported from their files, and exported to them.

use std::{
    io::Read,
    sync::{Arc, Weak},
    time::{Instant, SystemTime},
};

use tokio::sync::OwnedSemaphorePermit;

use super::{
    Engine, EngineError, FilterStatus, Inner, background,
    copying::Promise,
    filter_name,
    filters::{given_name, random_secret},
    guarded::GuardedFilter,
};
use crate::{
    filter::{
        exchange::{ExchangeError, guava, redisbloom},
        spec::FilterSpec,
    },
    store::{FilterId, FilterName},
};

/// The most imports at one time. Each has a thread, and the memory of its filter, before it is
/// known that all of its file will come.
pub const MAX_IMPORTS: usize = 8;

/// What a piece of an export has at most: 32 KiB.
const PIECE_WORDS: usize = 4096;

/// Whose file it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileFormat {
    /// What `BloomFilter.writeTo` of Guava writes.
    Guava,
    /// The header and the chunks of `BF.SCANDUMP` of RedisBloom.
    RedisBloom,
}

/// What is to be imported.
#[derive(Debug)]
pub struct Import {
    /// The name that the filter is to have.
    pub name: String,
    /// Whose file it is.
    pub format: FileFormat,
    /// The length of the file.
    pub file_bytes: u64,
    /// The keys that the filter is for; what the file says if that is not given.
    pub capacity: Option<u64>,
}

/// A filter on its way to a file of Guava. It keeps nothing of the filter: if that is deleted or
/// reset meanwhile, the export ends.
#[derive(Debug)]
pub struct Export {
    filter: Weak<GuardedFilter>,
    name: FilterName,
    shape: guava::Shape,
    /// The header, until it has been handed out.
    header: Option<Vec<u8>>,
    /// The words that have been handed out.
    next: u64,
}

impl Engine {
    /// Makes a filter of a file of another program, and tells how it is. It is on stable storage
    /// then. The file is read on a thread of its own; what it says of its size is checked before
    /// any memory is asked for, and it must end where the filter does.
    ///
    /// # Errors
    ///
    /// [`EngineError::Import`], [`EngineError::NameTaken`], [`EngineError::TooManyImports`],
    /// [`EngineError::OverBudget`] or another [`EngineError`]; there is then no filter.
    /// [`EngineError::NotDurable`]: there may be one after a crash.
    pub async fn import_filter(
        &self,
        import: Import,
        file: impl Read + Send + 'static,
    ) -> Result<FilterStatus, EngineError> {
        self.inner.check_recovered()?;
        let name = given_name("name", &import.name)?;
        let permit = self.inner.imports.clone().try_acquire_owned();
        let permit = permit.map_err(|_| EngineError::TooManyImports)?;
        let promise = {
            let naming = self.naming().await;
            self.promise(&naming, name.clone())?
        };
        let inner = self.inner.clone();
        let read = move || {
            let filter = inner.read_import(name, &import, file)?;
            Ok((Arc::new(filter), promise, permit))
        };
        let (filter, promise, permit): (_, Promise, OwnedSemaphorePermit) =
            background::run("import", read).await?;
        let turn = filter.turn().await;
        let inner = self.inner.clone();
        let store = move || {
            filter.store(&inner.directory, &inner.barrier, turn)?;
            filter.sample(Instant::now());
            inner.registry.insert(filter.clone());
            drop((promise, permit));
            Ok(filter.status())
        };
        background::run("import", store).await
    }

    /// Begins to hand a filter out as a file of Guava. It has all keys that were acknowledged
    /// before, and of those that are added meanwhile whatever bits are set when they are handed out.
    ///
    /// # Errors
    ///
    /// [`EngineError::UnknownFilter`], or [`EngineError::NotExportable`] if it is of another layout.
    pub async fn export_filter(&self, name: &str) -> Result<Export, EngineError> {
        let name = filter_name("name", name)?;
        let filter = self.filter_named(name.clone())?;
        let spec = filter.spec();
        let shape = spec.layout.strategy().map(|strategy| {
            let words = spec.bit_count / 64;
            guava::Shape::new(strategy, spec.hash_count, words)
        });
        let Some(Ok(shape)) = shape else {
            let layout = spec.layout;
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

impl Inner {
    fn read_import(
        &self,
        name: FilterName,
        import: &Import,
        mut file: impl Read,
    ) -> Result<GuardedFilter, EngineError> {
        let (size, capacity) = (import.file_bytes, import.capacity);
        let filter = match import.format {
            FileFormat::Guava => {
                let reader = guava::FilterReader::open(&mut file, size)?;
                let spec = FilterSpec::of_guava(reader.shape(), capacity);
                let mut filter = self.for_import(name, spec)?;
                reader.read_words(|first, words| {
                    self.barrier.pass()?;
                    filter.import_words(first, words);
                    Ok::<_, EngineError>(())
                })?;
                filter.finish_import(None, self.journal.get());
                filter
            }
            FileFormat::RedisBloom => {
                let reader = redisbloom::DumpReader::open(&mut file, size)?;
                let (keys, chain) = (reader.chain().keys_added(), reader.chain().clone());
                let mut filter = self.for_import(name, FilterSpec::of_chain(&chain, capacity))?;
                let (mut layer, mut first_word) = (0, 0);
                reader.read_words(|number, first, words| {
                    self.barrier.pass()?;
                    while layer < number {
                        let before = chain.layers().get(layer);
                        first_word += before.map_or(0, redisbloom::Layer::word_count);
                        layer += 1;
                    }
                    filter.import_words(first_word + first, words);
                    Ok::<_, EngineError>(())
                })?;
                filter.finish_import(Some(keys), self.journal.get());
                filter
            }
        };
        // Whoever sends the file has to say that it is all there.
        match file.read(&mut [0]).map_err(ExchangeError::Read)? {
            0 => Ok(filter),
            _ => Err(EngineError::LongImport { file_bytes: size }),
        }
    }

    /// An empty filter for what a file has.
    fn for_import(&self, name: FilterName, spec: FilterSpec) -> Result<GuardedFilter, EngineError> {
        let (secret, now) = (random_secret()?, SystemTime::now());
        let id = FilterId(self.directory.new_number());
        GuardedFilter::new(id, name, spec, secret, now, &self.budget, &self.clock)
    }
}

impl Export {
    /// The length of the file.
    pub fn file_bytes(&self) -> u64 {
        self.shape.file_bytes()
    }

    /// What comes next of the file; `None` at its end.
    ///
    /// # Errors
    ///
    /// [`EngineError::ExportEnded`] if the filter is not there any more.
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
