// Numbers of modules come from their names, not from the folder they are built in: the bundle is the same everywhere.
module.exports = { optimization: { moduleIds: 'named', chunkIds: 'named' } };
